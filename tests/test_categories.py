"""Kernel names -> category, attention family, GEMM dtype: a table of names, and the shared traces whole."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from stepscope.analyse.kernels.categories import (
    CATEGORY_RULES,
    attention_family,
    category_of,
    gemm_dtype,
    is_compiled,
)
from stepscope.analyse.kernels.families import NAME_LIMIT
from stepscope.model.vocabulary import KernelCategory

NAMES = Path(__file__).parent / "data" / "kernel_names.tsv"
"""One name a line with what it must give and where it is from: recorded in the shared traces, recorded in a
public profile, or spelt as the named source file spells the kernel."""


def rows() -> list[dict[str, str]]:
    with NAMES.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_table_is_large_enough_to_mean_something() -> None:
    """Three hundred names, every category and every vendor's libraries in it."""
    table = rows()

    assert len(table) >= 300
    assert {row["category"] for row in table} == {category.value for category in KernelCategory}
    assert {"bf16", "fp16", "fp32", "tf32", "fp8", "fp4"} <= {row["dtype"] for row in table}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"][:60])
def test_each_name_of_the_table_gives_what_the_table_says(row: dict[str, str]) -> None:
    """Category, attention family and, for GEMM and convolution, the operands' dtype."""
    name = row["name"]
    category = category_of(name)
    dtype = gemm_dtype(name) if category.value in {"gemm", "convolution"} else None

    assert (category.value, attention_family(name) or "-", dtype or "-") == (
        row["category"],
        row["attention"],
        row["dtype"],
    )


@pytest.mark.parametrize("rule", CATEGORY_RULES, ids=lambda rule: rule.example[:60])
def test_each_rule_finds_its_own_example(rule) -> None:
    """The example beside a rule is a name of its category, so the comment cannot rot."""
    assert rule.pattern.search(rule.example)
    assert category_of(rule.example) is rule.category


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("aten::_scaled_dot_product_cudnn_attention", "cudnn"),
        ("aten::_scaled_dot_product_flash_attention", "flash2"),
        ("aten::_scaled_dot_product_efficient_attention", "memory_efficient"),
        ("aten::_scaled_dot_product_attention_math", "math"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "cpu_flash"),
        ("aten::_flash_attention_forward", "flash2"),
        ("aten::_efficient_attention_forward", "memory_efficient"),
        ("aten::scaled_dot_product_attention", None),
        ("aten::addmm", None),
    ],
)
def test_operators_tell_the_attention_family_too(name: str, family: str | None) -> None:
    """A trace of a CPU run has operators only; the dispatching operator itself says nothing."""
    assert attention_family(name) == family


def test_a_compiled_kernel_named_after_attention_is_not_attention() -> None:
    """Inductor names what prepares the inputs of attention after it: that is layout work."""
    name = "triton_poi_fused__scaled_dot_product_cudnn_attention__to_copy_cat_permute_view_5"

    assert attention_family(name) is None
    assert category_of(name) is KernelCategory.COPY_LAYOUT


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        ("triton_poi_fused_gelu_view_11", True),
        ("triton_tem_fused_addmm_0", True),
        ("triton_red_fused_add_mul_native_layer_norm_split_unsqueeze_1", True),
        ("_layernorm_modulate_kernel", False),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", False),
        ("_attn_fwd", False),
    ],
)
def test_only_inductors_kernels_are_compiled(name: str, compiled: bool) -> None:
    """A hand-written Triton kernel says nothing about torch.compile."""
    assert is_compiled(name) is compiled


@pytest.mark.parametrize(
    "name", ["", " ", "(", "<" * 100_000, "a" * 1_000_000, "\x00\u202e", "triton_poi_fused_" + "t_" * 50_000]
)
def test_hostile_names_are_other_or_at_least_quick(name: str) -> None:
    """Any text has a category, and only the first characters of it are looked at."""
    assert isinstance(category_of(name), KernelCategory)
    assert category_of(name + "x") is category_of((name + "x")[:NAME_LIMIT])


class _Event(msgspec.Struct):
    name: str = ""
    cat: str = ""
    dur: float = 0.0


class _File(msgspec.Struct):
    traceEvents: list[_Event]


TRACES = (
    "qwen_image_4layer_all_stages_stack_memory",
    "qwen_image_4layer_compiled_blocks",
    "qwen_image_4layer_group_offload",
    "qwen_image_full_5_steps_cuda_only",
    "ulysses2-global-rank0",
    "ulysses2-global-rank1",
    "wan_4layer_unipc_stack",
)


@pytest.mark.parametrize("trace", TRACES)
def test_real_traces_leave_next_to_nothing_uncategorised(shared_traces: Path, trace: str) -> None:
    """Less than 1 % of the GPU time of each shared trace is OTHER; what is left are dense solvers."""
    data = gzip.decompress((shared_traces / f"{trace}.trace.json.gz").read_bytes())
    time_us: Counter[str] = Counter()
    for event in msgspec.json.decode(data, type=_File).traceEvents:
        if event.cat == "kernel":
            time_us[event.name] += event.dur
    other = {name for name in time_us if category_of(name) is KernelCategory.OTHER}

    assert sum(time_us[name] for name in other) < 0.01 * time_us.total()
    solver = ("getrf", "trsm", "ipiv", "laswp", "pivot", "xxtrf")
    assert all(any(word in name for word in solver) for name in other), other
