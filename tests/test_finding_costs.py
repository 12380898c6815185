"""No finding costs more than the time it speaks of, whatever the trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.analyse.report import analyse_trace
from stepscope.analyse.results import RankReport
from stepscope.model.trace import Device
from stepscope.model.vocabulary import Stage
from stepscope.record.open import read_trace
from traces import TraceBuilder

TRACES = sorted((Path(__file__).parent / "data" / "traces").glob("*.gz"))
STAGES = [Stage.TEXT_ENCODING, Stage.DENOISING, Stage.DECODING]
NAMES = [
    "gemm",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float>",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_cudnn",
    "ncclDevKernel_AllGather",
]


def beyond(rank: RankReport) -> list[str]:
    """Findings that cost more than their stage lasts, or more than the whole trace."""
    whole_ms = max((stage.start_ms + stage.duration_ms for stage in rank.stages), default=0.0)
    whole_ms = max(whole_ms, rank.gpu.span_ms if rank.gpu is not None else 0.0)
    found = []
    for finding in rank.findings:
        said = f"{finding.title} {finding.evidence}"
        if finding.id.startswith(("kernels.gaps", "kernels.unfused")):
            said += str(Stage.DENOISING.value)
        named = {stage.name for stage in rank.stages if stage.name in said}
        of_ms = sum(stage.duration_ms for stage in rank.stages if stage.name in named)
        if finding.id == "kernels.layout_transposes" or not named:
            of_ms = whole_ms
        if (finding.cost_ms or 0.0) > of_ms * (1 + 1e-9) + 1e-6:
            found.append(f"{finding.id}: {finding.cost_ms} of {of_ms} ms")
    return found


@st.composite
def traces(draw: st.DrawFn) -> TraceBuilder:
    """Stages and steps of a host, and work on several devices and streams that may end long after them."""
    count = draw(st.integers(1, 2))
    made = TraceBuilder(devices=tuple(Device(id=number, name="GPU") for number in range(count)))
    at, ready = 0.0, 0.0
    for number in range(draw(st.integers(1, 6))):
        stage = draw(st.sampled_from(STAGES))
        length = draw(st.integers(20, 2000))
        if stage is Stage.DENOISING:
            made.annotate(f"denoising_step_{number}", at, length)
        else:
            made.annotate(stage.value, at, length)
        for _ in range(draw(st.integers(1, 8))):
            launched = at + draw(st.integers(0, length - 5))
            ready = max(launched + 3, draw(st.sampled_from([ready, launched + 3, launched + 700])))
            duration = draw(st.integers(1, 900))
            where = {"device": draw(st.integers(0, count - 1)), "stream": draw(st.integers(7, 9))}
            if draw(st.integers(0, 4)) == 0:
                size = draw(st.sampled_from([4, 2**30]))
                made.copy("HtoD", launched, ready, duration, size=size, pinned=False, **where)
            else:
                made.launch(draw(st.sampled_from(NAMES)), launched, ready, duration, **where)
            if draw(st.booleans()):
                made.call("cudaStreamSynchronize", launched + 1, draw(st.integers(1, 900)))
        at += length + draw(st.integers(0, 500))
    return made


@settings(max_examples=150, deadline=None)
@given(traces())
def test_no_finding_costs_more_than_the_time_it_speaks_of(made: TraceBuilder) -> None:
    """Several devices, streams side by side, gaps and kernels that reach beyond their stage."""
    assert beyond(analyse_trace(made.build()).rank) == []


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_no_finding_of_a_recorded_trace_does_either(path: Path) -> None:
    """What profilers really write."""
    assert beyond(analyse_trace(read_trace(path)).rank) == []


def test_each_host_bound_stage_has_a_finding_of_its_own() -> None:
    """The time of one is not charged to the other."""
    made = TraceBuilder()
    for number, name in enumerate(("TextEncodingStage", "denoising_step_0")):
        made.annotate(name, 1000 * number, 1000)
        for index in range(10):
            at = 1000 * number + 100 * index
            made.launch("gemm", at, at + 6, 5)
    found = [one for one in analyse_trace(made.build()).rank.findings if one.id == "host.launch_bound"]
    assert len(found) == 2
    assert all(0 < (one.cost_ms or 0) < 1.0 for one in found)
