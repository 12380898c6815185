"""What was engaged: on the shared traces and on small ones written for the case."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.analyse.intervals import union
from stepscope.analyse.kernels.engaged import engaged
from stepscope.analyse.results import EngagedView
from stepscope.model.trace import Trace
from stepscope.record.kineto.reader import read_kineto


def busy_ns(trace: Trace) -> int:
    """Busy time of a one-device trace: the union of kernels and copies."""
    start = np.concatenate((trace.kernels.start_ns, trace.copies.start_ns))
    duration = np.concatenate((trace.kernels.duration_ns, trace.copies.duration_ns))
    return union(start, start + duration).total_ns


def seen_in(path: Path) -> EngagedView:
    trace = read_kineto(path)
    return engaged(trace, busy_ns(trace))


@pytest.fixture
def view(tmp_path: Path) -> Any:
    """The view of a trace made of the given events."""

    def make(*events: dict[str, Any]) -> EngagedView:
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
        return seen_in(path)

    return make


def event(cat: str, name: str, start_us: float, duration_us: float, **args: Any) -> dict[str, Any]:
    place = {"pid": 0, "tid": args.get("stream", 1)}
    return {"ph": "X", "cat": cat, "name": name, "ts": start_us, "dur": duration_us, "args": args} | place


def kernel(name: str, start_us: float, duration_us: float, stream: int = 7) -> dict[str, Any]:
    return event("kernel", name, start_us, duration_us, device=0, stream=stream, correlation=1)


def operator(name: str, start_us: float, dims: list[list[int]], dtype: str) -> dict[str, Any]:
    shapes = {"Input Dims": dims, "Input type": [dtype] * len(dims), "Concrete Inputs": [""] * len(dims)}
    return event("cpu_op", name, start_us, 5, **shapes)


def launch(name: str, correlation: int) -> dict[str, Any]:
    return event("cuda_runtime", name, correlation, 1, correlation=correlation)


def test_an_eager_run_is_seen_as_it_was(shared_traces: Path) -> None:
    """Full Qwen-Image on an H200: cuDNN attention, bf16 GEMMs, nothing compiled, no graphs."""
    seen = seen_in(shared_traces / "qwen_image_full_5_steps_cuda_only.trace.json.gz")

    assert seen == EngagedView(
        attention="cudnn", gemm_dtypes=("bf16",), compiled_kernel_share=0.0, graph_replays=0
    )


def test_a_compiled_run_shows_inductors_kernels(shared_traces: Path) -> None:
    """The traced run with compiled blocks: a tenth of the busy time is in generated kernels."""
    seen = seen_in(shared_traces / "qwen_image_4layer_compiled_blocks.trace.json.gz")

    assert seen.attention == "cudnn"
    assert 0.05 < seen.compiled_kernel_share < 0.2


def test_the_family_with_the_most_time_is_the_engaged_one(view) -> None:
    """A VAE's single memory-efficient call does not hide the denoiser's attention."""
    seen = view(
        kernel("fmha_cutlassF_bf16_aligned_32x128_gmem_sm80", 0, 10),
        kernel("void qk_int_sv_f8_attn_kernel<128u, 64u>", 10, 20),
    )

    assert seen.attention == "sage"


def test_overlapping_compiled_kernels_count_their_time_once(view) -> None:
    """Two streams: the share is of busy time and cannot exceed one."""
    seen = view(
        kernel("triton_poi_fused_gelu_view_11", 0, 10, stream=7),
        kernel("triton_red_fused_mean_2", 0, 10, stream=8),
        kernel("nvjet_sm90_hsh_64x8_64x16_1x1_h_bz_NNT", 10, 10),
    )

    assert seen.compiled_kernel_share == 0.5
    assert seen.gemm_dtypes == ("fp16",)


def test_a_helpers_dtype_is_not_the_models(view) -> None:
    """Below one percent of the GEMMs' time; what is above is listed by time."""
    seen = view(
        kernel("nvjet_sm90_qqtst_128x160_128x6_TNN", 0, 600),
        kernel("nvjet_sm90_tst_256x128_64x4_TNT", 600, 300),
        kernel("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n", 900, 5),
    )

    assert seen.gemm_dtypes == ("fp8", "bf16")


def test_a_cpu_run_is_seen_from_its_operators(view) -> None:
    """No kernels at all: attention and dtype come from what was called with which tensors."""
    seen = view(
        operator("aten::_scaled_dot_product_attention_math", 0, [[1, 2, 8, 16]] * 3, "float"),
        operator("aten::addmm", 10, [[4], [8, 16], [16, 4]], "c10::BFloat16"),
    )

    assert seen.attention == "math"
    assert set(seen.gemm_dtypes) == {"fp32", "bf16"}
    assert seen.compiled_kernel_share == 0.0


def test_each_graph_launch_is_one_replay(view) -> None:
    """A driver call inside the runtime call shares its correlation and is no second replay."""
    seen = view(
        launch("cudaGraphLaunch", 5),
        launch("cuGraphLaunch", 5),
        launch("cudaGraphLaunch", 6),
        launch("cudaLaunchKernel", 7),
        launch("cuGraphLaunch", 5),
        launch("cudaGraphLaunch", 6),
        launch("cudaLaunchKernel", 7),
    )

    assert seen.graph_replays == 2


def test_a_trace_without_work_engages_nothing(view) -> None:
    """Nothing seen is said as nothing."""
    nothing = EngagedView(attention=None, gemm_dtypes=(), compiled_kernel_share=0.0, graph_replays=0)

    assert view(event("user_annotation", "DenoisingStage", 0, 5)) == nothing
