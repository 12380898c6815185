"""FLOPs from recorded shapes: against torch's own counter on real calls and the analytic DiT formula."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operator_tables import OperatorTable, Row, operators_of_file, shapes_text, table
from stepscope.analyse.kernels.flop_formulas import FLOP_FORMULAS, Inputs, dtype_of, flops_of, parse_inputs
from stepscope.analyse.kernels.flops import operator_dtypes, operator_flops

torch = pytest.importorskip("torch")
F = torch.nn.functional

FIXTURE = Path(__file__).parent / "data" / "qwen_image_4layer_forward_operators.json"
"""The multiplications, norms and copies of one denoiser forward, cut from the shared trace it names."""

Call = Callable[[], object]


def rand(*sizes: int) -> "torch.Tensor":
    return torch.randn(*sizes)


CALLS: dict[str, Call] = {
    "mm": lambda: rand(8, 16) @ rand(16, 4),
    "addmm": lambda: torch.addmm(rand(4), rand(8, 16), rand(16, 4)),
    "bmm": lambda: torch.bmm(rand(3, 8, 16), rand(3, 16, 5)),
    "baddbmm": lambda: torch.baddbmm(rand(3, 8, 5), rand(3, 8, 16), rand(3, 16, 5)),
    "matmul broadcast": lambda: rand(2, 3, 8, 16) @ rand(16, 5),
    "matmul batched": lambda: rand(2, 3, 8, 16) @ rand(2, 3, 16, 5),
    "linear": lambda: F.linear(rand(2, 8, 16), rand(4, 16), rand(4)),
    "linear without bias": lambda: F.linear(rand(2, 8, 16), rand(4, 16)),
    "einsum": lambda: torch.einsum("bhqd,bhkd->bhqk", rand(2, 4, 8, 16), rand(2, 4, 6, 16)),
    "conv1d": lambda: F.conv1d(rand(2, 4, 9), rand(6, 4, 3), rand(6), padding=1),
    "conv2d": lambda: F.conv2d(rand(2, 4, 9, 8), rand(6, 4, 3, 3), rand(6), stride=2, padding=1),
    "conv2d grouped": lambda: F.conv2d(rand(1, 4, 8, 8), rand(6, 2, 3, 3), groups=2),
    "conv2d same": lambda: F.conv2d(rand(1, 4, 8, 8), rand(6, 4, 3, 3), padding="same", dilation=2),
    "conv2d depthwise": lambda: F.conv2d(rand(1, 4, 8, 8), rand(4, 1, 3, 3), groups=4, padding=1),
    "conv3d": lambda: F.conv3d(rand(1, 4, 3, 8, 8), rand(6, 4, 3, 3, 3), padding=(0, 1, 1)),
    "conv_transpose2d": lambda: F.conv_transpose2d(rand(1, 4, 8, 8), rand(4, 6, 3, 3), stride=2, padding=1),
    "conv_transpose1d": lambda: F.conv_transpose1d(rand(1, 4, 8), rand(4, 3, 4), stride=2),
    "conv_transpose3d": lambda: F.conv_transpose3d(rand(1, 4, 2, 4, 4), rand(4, 3, 2, 2, 2), groups=1),
    "two layers": lambda: F.linear(F.gelu(F.linear(rand(2, 8, 16), rand(32, 16))), rand(16, 32)),
}


def recorded(call: Call, folder: Path) -> OperatorTable:
    """The operators that torch.profiler records of ``call``, with shapes."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        call()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    return operators_of_file(path)


def counted_by_torch(call: Call) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", CALLS)
def test_a_recorded_call_has_the_flops_torch_counts(name: str, tmp_path: Path) -> None:
    """Through a real trace: nested operators count once, whichever backend the CPU build picks."""
    total = np.nansum(operator_flops(*recorded(CALLS[name], tmp_path)))

    assert total == counted_by_torch(CALLS[name]) > 0


@pytest.mark.parametrize("heads_kv", [4, 2], ids=["mha", "gqa"])
@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION"])
def test_attention_counts_the_same_fused_or_not(heads_kv: int, backend: str, tmp_path: Path) -> None:
    """The CPU's flash kernel, which torch's counter does not know, equals the maths path, which it does."""
    query, key = rand(2, 4, 24, 32), rand(2, heads_kv, 40, 32)

    def call(chosen: str) -> object:
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, chosen)):
            return F.scaled_dot_product_attention(query, key, key, enable_gqa=heads_kv != 4)

    total = np.nansum(operator_flops(*recorded(lambda: call(backend), tmp_path)))

    assert total == counted_by_torch(lambda: call("MATH")) == 2 * 2 * 4 * 24 * 40 * 64


def test_fp8_and_grouped_products_count(tmp_path: Path) -> None:
    """``_scaled_mm`` and ``_grouped_mm``, which the CPU build carries out by other products inside."""
    fp8 = rand(16, 32).to(torch.float8_e4m3fn)
    one = torch.tensor(1.0)
    scaled = recorded(lambda: torch._scaled_mm(fp8, fp8.t(), one, one, out_dtype=torch.bfloat16), tmp_path)
    offsets = torch.tensor([16, 32], dtype=torch.int32)
    grouped = recorded(
        lambda: torch._grouped_mm(rand(32, 64).bfloat16(), rand(2, 64, 16).bfloat16(), offs=offsets), tmp_path
    )

    assert np.nansum(operator_flops(*scaled)) == 2 * 16 * 32 * 16
    assert np.nansum(operator_flops(*grouped)) == 2 * 32 * 64 * 16


CONV = [[1, 16, 8, 8], [32, 16, 3, 3]]
HALVED = 2 * (4 * 4) * (32 * 16 * 9)
"""Of CONV at stride 2: a 4 x 4 output."""


@pytest.mark.parametrize(
    ("operator", "dims", "concrete", "expected"),
    [
        # What only a GPU records, with the argument order of its schema.
        ("aten::cudnn_convolution", CONV, ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"], HALVED),
        ("aten::miopen_convolution", CONV, ["", "", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"], HALVED),
        ("aten::cudnn_convolution_relu", CONV, ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "1"], HALVED),
        ("aten::cudnn_convolution_add_relu", CONV, ["", "", "", "1", "", "2", "1", "1", "1"], HALVED),
        ("aten::_conv_depthwise2d", CONV, ["", "", "[3, 3]", "", "[2, 2]", "[1, 1]", "[1, 1]"], HALVED),
        ("aten::thnn_conv2d", CONV, ["", "", "[3, 3]", "", "[2, 2]", "[1, 1]"], HALVED),
        ("aten::cudnn_convolution_transpose", [[1, 16, 8, 8], [16, 4, 2, 2]], [], 2 * 64 * 16 * 4 * 4),
        ("aten::_scaled_dot_product_cudnn_attention", [[1, 24, 4160, 128]] * 3, [], 4 * 24 * 4160**2 * 128),
        ("aten::_scaled_dot_product_fused_attention_overrideable", [[1, 2, 8, 16]] * 3, [], 4 * 2 * 64 * 16),
        ("aten::_flash_attention_forward", [[1, 4160, 24, 128]] * 3, [], 4 * 24 * 4160**2 * 128),
        ("aten::_efficient_attention_forward", [[1, 1024, 1, 384]] * 3, [], 4 * 1024**2 * 384),
        ("flash_attn::_flash_attn_forward", [[2, 64, 4, 32]] * 3, [], 2 * 4 * 4 * 64**2 * 32),
        ("flash_attn_3::fwd", [[2, 64, 4, 32]] * 3, [], 2 * 4 * 4 * 64**2 * 32),
        ("_diffusers_flash_attn_3::_flash_attn_forward", [[2, 64, 4, 32]] * 3, [], 2 * 4 * 4 * 64**2 * 32),
        ("aten::_grouped_mm", [[4, 8, 16], [4, 16, 5]], [], 2 * 4 * 8 * 16 * 5),
        ("aten::_grouped_mm", [[2, 8, 16], [16, 10]], [], 2 * 8 * 16 * 10),
        ("aten::mv", [[8, 16], [16]], [], 2 * 8 * 16),
        ("aten::dot", [[16], [16]], [], 2 * 16),
        ("aten::addbmm", [[8, 5], [3, 8, 16], [3, 16, 5]], [], 2 * 3 * 8 * 16 * 5),
        ("aten::conv2d", [[16, 8, 8], [4, 16, 3, 3]], ["", "", "", "1", "0", "1", "1"], 2 * 36 * 4 * 16 * 9),
    ],
)  # fmt: skip
def test_operators_that_no_cpu_runs(operator: str, dims: list, concrete: list, expected: int) -> None:
    """Each formula by hand."""
    assert flops_of(operator, Inputs(dims=tuple(map(tuple, dims)), concrete=tuple(concrete))) == expected


def test_two_fp4_numbers_lie_in_each_recorded_element() -> None:
    """NVFP4 operands are recorded packed, so K is twice what the shape says."""
    inputs = parse_inputs(
        shapes_text([[16, 32], [32, 8]], ["c10::Float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2"])
    )

    assert inputs is not None
    assert flops_of("aten::_scaled_mm", inputs) == 2 * 16 * 64 * 8
    assert dtype_of(inputs) == "fp4"


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(4, 20), st.integers(4, 20)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    groups=st.sampled_from([1, 2, 4]),
    transposed=st.booleans(),
)
def test_any_convolution_agrees_with_torch(
    size: tuple[int, int], kernel: tuple[int, int], stride: int, padding: int, groups: int, transposed: bool
) -> None:
    """On meta tensors, so that torch works out the output's shape itself."""
    weight_sizes = (8, 12 // groups, *kernel) if transposed else (12, 8 // groups, *kernel)
    with torch.device("meta"):
        x, weight = rand(2, 8, *size), rand(*weight_sizes)
        convolve = F.conv_transpose2d if transposed else F.conv2d
        padding = min(padding, (kernel[0] - 1), (kernel[1] - 1))
        expected = counted_by_torch(
            lambda: convolve(x, weight, stride=stride, padding=padding, groups=groups)
        )
    inputs = Inputs(
        dims=((2, 8, *size), weight_sizes),
        concrete=("", "", "", f"[{stride}, {stride}]", f"[{padding}, {padding}]", "[1, 1]", str(transposed)),
    )

    assert flops_of("aten::convolution", inputs) == expected


MM = shapes_text([[8, 16], [16, 4]], ["float", "float"])


def test_only_the_innermost_of_a_nest_counts() -> None:
    """linear > matmul > mm is one product; the two beside it on another thread are two more."""
    rows = [
        Row("aten::linear", 0, 100, shapes_text([[8, 16], [4, 16]], ["float"] * 2)),
        Row("aten::matmul", 10, 80, MM),
        Row("aten::mm", 20, 60, MM),
        Row("aten::mm", 10, 20, MM, thread=2),
        Row("aten::mm", 30, 20, MM, thread=2),
        Row("aten::mm", 20, 60, MM, process=1),
    ]
    flops = operator_flops(*table(rows))

    assert np.nansum(flops) == 4 * 2 * 8 * 16 * 4
    assert np.isnan(flops[0])


def test_equal_and_touching_times_do_not_count_twice_or_not_at_all() -> None:
    """A parent and child of the same rounded times are one; siblings that overlap by a nanosecond are two."""
    nested = [Row("aten::matmul", 0, 100, MM), Row("aten::mm", 0, 100, MM)]
    instant = [Row("aten::matmul", 0, 0, MM), Row("aten::mm", 0, 0, MM)]
    siblings = [Row("aten::mm", 0, 101, MM), Row("aten::mm", 100, 100, MM)]

    assert [np.nansum(operator_flops(*table(rows))) / 1024 for rows in (nested, instant, siblings)] == [
        1,
        1,
        2,
    ]


def test_a_parent_counts_where_its_child_cannot() -> None:
    """A packed (varlen) FlashAttention call has no known lengths; the operator around it has."""
    rows = [
        Row("aten::_scaled_dot_product_flash_attention", 0, 100, shapes_text([[1, 2, 8, 16]] * 3)),
        Row("aten::_flash_attention_forward", 10, 80, shapes_text([[8, 2, 16]] * 3)),
    ]

    assert np.nansum(operator_flops(*table(rows))) == 4 * 2 * 64 * 16


SIZES = st.integers(-3, 2**62) | st.lists(st.integers(0, 9), max_size=2)
CONSTANTS = st.sampled_from(["", "True", "[1, 1]", "[0]", "-1", "[,]", "[1, 1", "9" * 400])


@settings(max_examples=50, deadline=None)
@given(
    operator=st.sampled_from(sorted(FLOP_FORMULAS)),
    dims=st.lists(
        st.lists(st.integers(-3, 2**62) | st.lists(st.integers(0, 9), max_size=2), max_size=5), max_size=5
    ),
    concrete=st.lists(
        st.sampled_from(["", "True", "[1, 1]", "[0]", "-1", "[,]", "[1, 1", "9" * 400]), max_size=9
    ),
)
def test_no_recorded_shapes_break_a_formula(operator: str, dims: list, concrete: list) -> None:
    """Whatever stands in a file gives a finite figure or none."""
    flops = operator_flops(*table([Row(f"aten::{operator}", 0, 1, shapes_text(dims, ["float"], concrete))]))

    assert np.isnan(flops[0]) or 0 <= flops[0] < 2**80


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dims": 3}', '{"dims": [["a"]]}', "null", "[" * 5000])
def test_texts_that_are_no_shapes_count_nothing(text: str) -> None:
    """Damaged shapes are not an error: the operator is not counted."""
    assert np.isnan(operator_flops(*table([Row("aten::mm", 0, 1, text)]))).all()


def test_an_empty_table_and_one_without_shapes_count_nothing() -> None:
    """Every trace goes through here, also those recorded without shapes."""
    assert operator_flops(*table([])).shape == (0,)
    assert np.isnan(operator_flops(*table([Row("aten::mm", 0, 1)]))).all()
    assert operator_dtypes(*table([Row("aten::mm", 0, 1)])) == ()


def dit_forward(*, blocks: int, image_tokens: int, text_tokens: int, width: int = 3072) -> float:
    """A double-stream DiT (Qwen-Image): 2 * weights * tokens + 4 * blocks * width * tokens squared.

    12 * width^2 weights a stream and block: four projections and an MLP of four times the width.
    """
    tokens = image_tokens + text_tokens
    return 2 * 12 * width**2 * blocks * tokens + 4 * blocks * width * tokens**2


def test_the_analytic_formula_gives_the_published_figure() -> None:
    """Qwen-Image at 1024x1024: 69.3 TFLOP a forward, 18.4 % of it attention (shared facts, section 6.4)."""
    whole = dit_forward(blocks=60, image_tokens=4096, text_tokens=64)

    assert whole == pytest.approx(69.3e12, rel=0.002)
    assert 4 * 60 * 3072 * 4160**2 / whole == pytest.approx(0.184, abs=0.001)


def test_a_recorded_forward_agrees_with_the_analytic_formula() -> None:
    """Four blocks at 256x256 from a real H200 trace; embedders and modulation are the few percent."""
    cut = json.loads(FIXTURE.read_text())
    rows = [
        Row(cut["names"][name], start, duration, None if shape < 0 else cut["shapes"][shape])
        for name, start, duration, shape in cut["rows"]
    ]
    recorded_table = table(rows)
    attention = parse_inputs(next(text for text in cut["shapes"] if "[1,24," in text))
    assert attention is not None
    tokens = attention.shape(0)[2]
    expected = dit_forward(blocks=4, image_tokens=256, text_tokens=tokens - 256)

    assert np.nansum(operator_flops(*recorded_table)) == pytest.approx(expected, rel=0.03)
    assert operator_dtypes(*recorded_table)[0][0] == "bf16"


def is_block_product(operator: str, shapes: str) -> bool:
    """Whether this is attention or a projection of a transformer block split over two ranks."""
    inputs = parse_inputs(shapes)
    assert inputs is not None
    if operator == "aten::_cudnn_attention_forward":
        return inputs.shape(0)[1] == 24 // 2
    rows, columns = inputs.shape(1), inputs.shape(2)
    return operator == "aten::addmm" and rows[0] > 1 and {*rows[1:], *columns} <= {3072, 4 * 3072}


def test_two_ranks_of_a_split_sequence_do_the_whole_forward(shared_traces: Path) -> None:
    """Ulysses over two GPUs, six blocks at 1024x1024, three steps: together they do what one would."""
    total = 0.0
    for rank in (0, 1):
        path = shared_traces / f"ulysses2-global-rank{rank}.trace.json.gz"
        operators, names, shapes = operators_of_file(path)
        flops = operator_flops(operators, names, shapes)
        for index in np.flatnonzero(~np.isnan(flops)):
            if is_block_product(names[operators.name[index]], shapes[operators.shapes[index]]):
                total += flops[index]
    prompts = (104, 70)  # tokens of the prompt and of the negative prompt
    whole = 3 * sum(dit_forward(blocks=6, image_tokens=4096, text_tokens=tokens) for tokens in prompts)

    assert total == pytest.approx(whole, rel=0.01)
