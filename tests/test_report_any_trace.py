"""Whatever a trace holds, analysis gives a report that adds up and can be written."""

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.analyse.report import analyse_trace, assemble
from stepscope.render.report.report_json import render_json
from traces import TraceBuilder

NAMES = st.sampled_from(
    (
        "gemm",
        "ncclDevKernel_AllGather",
        "",
        "nchwToNhwcKernel",
        "void f<float>(int)",
        "\u202e<script>",
        "triton_poi_fused_0",
    )
)
RANGES = st.sampled_from(
    (
        "denoising_step_0", "denoising_step_1", "denoising_step_99999999999", "ProfilerStep#3", "STAGE x",
        "stage_", "DenoisingStage", "DecodingStage", "scheduler_step", "transformer_forward", "Pipeline", "",
    )
)  # fmt: skip
FRAMES = st.sampled_from(
    (
        "a.py(1): f",
        "torch/x.py(2): g",
        "nn.Module: M_0",
        "diffusers/schedulers/s.py(1): step",
        "(: ",
        "x(1): ",
    )
)
CALLS = st.sampled_from(
    (
        "cudaLaunchKernel",
        "cudaStreamSynchronize",
        "cudaMalloc",
        "cudaStreamBeginCapture",
        "cudaGraphLaunch",
        "",
    )
)
AT = st.integers(-50, 400)
LONG = st.integers(0, 200)
EVENT = st.one_of(
    st.tuples(st.just("launch"), NAMES, AT, AT, LONG, st.integers(0, 2)),
    st.tuples(st.just("kernel"), NAMES, AT, LONG, st.integers(-1, 5)),
    st.tuples(st.just("call"), CALLS, AT, LONG),
    st.tuples(st.just("copy"), st.sampled_from(("HtoD", "DtoH", "DtoD", "fill")), AT, AT, LONG),
    st.tuples(st.just("annotate"), RANGES, AT, LONG, st.booleans()),
    st.tuples(st.just("frame"), FRAMES, AT, LONG),
    st.tuples(st.just("operator"), NAMES, AT, LONG),
    st.tuples(st.just("allocated"), AT, st.integers(0, 2**40)),
)


def made_of(events: list[tuple]) -> TraceBuilder:
    made = TraceBuilder()
    for kind, *values in events:
        if kind == "launch":
            name, at, start, duration, thread = values
            made.launch(name, at, start, duration, thread=thread, device=thread % 2, stream=thread)
        elif kind == "kernel":
            name, start, duration, correlation = values
            made.kernel(name, start, duration, correlation)
        elif kind == "annotate":
            name, start, duration, ours = values
            made.annotate(name, start, duration, ours=ours)
        else:
            getattr(made, kind)(*values)
    return made


def numbers(value: object) -> list[float]:
    """Every number in a JSON document."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENT, max_size=40))
def test_any_trace_gives_a_report_of_finite_numbers_that_add_up(events: list[tuple]) -> None:
    """No exception, no NaN, idle causes that are the idle time, kernels that are all accounted for."""
    found = analyse_trace(made_of(events).build())
    document = json.loads(render_json(assemble((), (), [found])))
    rank = document["ranks"][0]

    assert all(math.isfinite(number) for number in numbers(document))
    if rank["gpu"] is not None:
        gpu = rank["gpu"]
        parts = ("compute_ms", "exposed_communication_ms", "exposed_copy_ms", "idle_ms")
        whole = gpu["span_ms"] * gpu["device_count"]
        assert math.isclose(sum(gpu[part] for part in parts), whole, abs_tol=1e-6)
        assert math.isclose(sum(c["total_ms"] for c in gpu["idle_causes"]), gpu["idle_ms"], abs_tol=1e-6)
        assert 0 <= gpu["busy_ratio"] <= 1
        assert all(cause["total_ms"] >= 0 for cause in gpu["idle_causes"])
        inside = sum(stage["kernel_count"] for stage in rank["stages"])
        assert inside + rank["outside_kernel_count"] == gpu["kernel_count"]
    assert all(stage["duration_ms"] >= 0 and stage["idle_ms"] >= 0 for stage in rank["stages"])
