"""Each rule finds what it is for, says what it costs, and stays silent otherwise."""

import re
from dataclasses import replace

import pytest

from reports import normal
from stepscope.analyse.report import analyse_trace, assemble
from stepscope.analyse.results import Finding, RankReport
from stepscope.render.report.answer import MOST_FINDINGS
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal
from traces import TraceBuilder

MIB = 1024**2


def report_of(made: TraceBuilder) -> RankReport:
    return analyse_trace(made.build()).rank


def findings_of(made: TraceBuilder) -> dict[str, Finding]:
    return {finding.id: finding for finding in report_of(made).findings}


def loop(made: TraceBuilder, steps: int = 3, kernels: int = 20, each: float = 40, ahead: float = 60) -> float:
    """A denoising loop whose GPU is always busy; gives the end on the GPU."""
    host, device = 0.0, ahead
    for step in range(steps):
        made.annotate(f"denoising_step_{step}", host, kernels * 10)
        for _ in range(kernels):
            made.launch("gemm", host + 1, device, each)
            host += 10
            device += each
    return device


def test_a_healthy_loop_has_no_findings() -> None:
    """A GPU that is always busy with large kernels is left alone."""
    made = TraceBuilder()
    loop(made)

    assert findings_of(made) == {}


def test_a_synchronisation_costs_the_idle_time_it_exposes_and_names_who_asked() -> None:
    """Not a count: each step's item() lets the queue run dry for 50 us."""
    made = TraceBuilder()
    for step in range(4):
        base = 300.0 * step
        made.annotate(f"denoising_step_{step}", base, 300)
        made.frame("diffusers/schedulers/scheduling_x.py(7): index_for_timestep", base + 20, 170)
        made.launch("gemm", base + 5, base + 10, 180)
        made.call("cudaStreamSynchronize", base + 30, 162)
        made.launch("gemm", base + 235, base + 240, 60)
    found = findings_of(made)["host.sync_in_loop"]

    assert found.source is not None
    assert found.source.function == "index_for_timestep"
    assert found.cost_ms == pytest.approx(4 * 0.045, rel=0.05)
    assert "4 calls in 4 steps" in found.evidence


def test_a_synchronisation_that_exposes_nothing_is_only_information() -> None:
    """The queue stays full: removing the call wins nothing."""
    made = TraceBuilder()
    loop(made, ahead=2000)
    for step in range(3):
        made.call("cudaStreamSynchronize", 200 * step + 55, 3)
    found = findings_of(made)["host.sync_in_loop"]

    assert found.severity == "info"
    assert found.cost_ms == 0


def test_small_kernels_launched_slower_than_they_run_are_launch_bound() -> None:
    """3 us of work for every 30 us of launching."""
    made = TraceBuilder()
    for step in range(3):
        made.annotate(f"denoising_step_{step}", 600 * step, 600)
        for index in range(20):
            made.launch("elementwise_kernel", 600 * step + 30 * index, 600 * step + 30 * index + 6, 3)
    found = findings_of(made)["host.launch_bound"]

    assert found.cost_ms == pytest.approx(3 * 20 * 0.027, rel=0.05)
    assert "DenoisingStage" in found.title
    assert "a profiler slows such a host too" in found.evidence
    assert found.remedy.endswith("Step times are those of a run without a profiler.")


def test_offloading_weights_on_the_critical_path() -> None:
    """A gigabyte from pageable memory while nothing runs."""
    made = TraceBuilder()
    end = loop(made)
    made.copy("HtoD", end, end + 10, 5000, size=1024 * MIB, pinned=False, call_duration=5000)
    found = findings_of(made)

    assert found["copies.offload_exposed"].cost_ms == pytest.approx(5.0)
    assert "100.0 % from or to pageable" in found["copies.offload_exposed"].evidence
    assert "copies.pageable" not in found


def test_small_pageable_copies_are_told_apart_from_offloading() -> None:
    """A constant made on the host in every step."""
    made = TraceBuilder()
    end = loop(made)
    for index in range(10):
        made.copy("HtoD", end + 100 * index, end + 100 * index + 10, 20, size=4, pinned=False)
    found = findings_of(made)

    assert found["copies.pageable"].cost_ms == pytest.approx(0.2)
    assert "copies.offload_exposed" not in found


def test_copies_hidden_behind_kernels_cost_nothing() -> None:
    """Prefetching that works is not a finding."""
    made = TraceBuilder()
    loop(made)
    made.copy("HtoD", 5, 100, 2000, size=1024 * MIB, pinned=True, stream=20)

    assert findings_of(made) == {}


def test_layout_transposes_around_convolutions() -> None:
    """cuDNN's own conversions between NCHW and NHWC."""
    made = TraceBuilder()
    made.annotate("DecodingStage", 0, 100)
    made.launch("void cudnn::engines_precompiled::nchwToNhwcKernel<float>", 1, 10, 100)
    made.launch("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_cudnn", 2, 110, 300)
    found = findings_of(made)["kernels.layout_transposes"]

    assert found.cost_ms == pytest.approx(0.1)
    assert "DecodingStage" in found.evidence


@pytest.mark.parametrize(
    ("convolution", "expected"),
    [
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_cudnn", "kernels.fp32_decoder"),
        ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_cudnn", "kernels.fp32_casts"),
    ],
)
def test_single_precision_in_the_decoder(convolution: str, expected: str) -> None:
    """The whole VAE in fp32, or casts around half-precision convolutions."""
    made = TraceBuilder()
    made.annotate("DecodingStage", 0, 100)
    made.launch(convolution, 1, 10, 300)
    made.launch(
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", 2, 310, 90
    )

    assert expected in findings_of(made)


def test_chains_of_memory_bound_kernels_cost_at_most_all_but_their_longest() -> None:
    """Fusing a chain of four leaves one pass over the data."""
    made = TraceBuilder()
    made.annotate("denoising_step_0", 0, 400)
    at = 500.0
    for index in range(10):
        for name, length in (
            ("gemm", 40),
            *(("void at::native::vectorized_elementwise_kernel<add>", 20),) * 4,
        ):
            made.launch(name, index, at, length)
            at += length
    found = findings_of(made)["kernels.unfused_chains"]

    assert found.cost_ms == pytest.approx(10 * 0.060)


def test_gaps_between_queued_kernels() -> None:
    """Two microseconds after each of many short kernels."""
    made = TraceBuilder()
    made.annotate("denoising_step_0", 0, 400)
    for index in range(100):
        made.launch("gemm", index, 500 + 12 * index, 10)
    found = findings_of(made)["kernels.gaps"]

    assert found.cost_ms == pytest.approx(99 * 0.002)


def test_guidance_in_two_forwards_matters_where_the_host_is_the_limit() -> None:
    """Batching halves the launches."""
    made = TraceBuilder()
    for step in range(3):
        base = 1000 * step
        made.annotate(f"denoising_step_{step}", base, 1000)
        for forward in (0, 1):
            made.annotate("transformer_forward", base + 500 * forward, 400)
            for index in range(10):
                at = base + 500 * forward + 40 * index
                made.launch("gemm", at, at + 6, 5)

    assert "steps.unbatched_guidance" in findings_of(made)


def test_a_slow_step_is_told_with_what_the_host_did_meanwhile() -> None:
    """One step loads a library."""
    made = TraceBuilder()
    at = 0.0
    for step in range(5):
        pause = 500 if step == 2 else 0
        made.annotate(f"denoising_step_{step}", at, 100 + pause)
        made.launch("gemm", at + 5, at + 10, 80)
        if pause:
            made.operator("aten::linalg_lu_factor_ex", at + 20, 560)
        made.launch("gemm", at + 85 + pause, at + 95 + pause, 5)
        at += 100 + pause
    report = report_of(made)
    found = {finding.id: finding for finding in report.findings}["steps.slow"]

    assert report.steps[2].outlier is not None
    assert "aten::linalg_lu_factor_ex" in report.steps[2].outlier
    assert found.cost_ms == pytest.approx(0.5, rel=0.05)
    assert [step.outlier for step in report.steps if step.index != 2] == [None] * 4


def test_without_a_gpu_a_slow_step_is_told_by_its_operators() -> None:
    """A callback trebles the work of one step; other threads and a merely slow step do not count."""
    made = TraceBuilder()
    for step in range(6):
        at, count = 10_000 * step, 3_300 if step == 2 else 1_100
        made.annotate(f"denoising_step_{step}", at, 9_000 if step in (2, 4) else 3_000)
        for index in range(count):
            made.operator("aten::mul", at + index, 1)
            made.operator("aten::add", at + index, 1, thread=2)
    steps = report_of(made).steps

    assert steps[2].outlier == "3,300 operators instead of 1,100"
    assert steps[4].outlier == "nothing else in it differs"


def test_a_step_served_from_a_cache_is_named_by_its_missing_kernels() -> None:
    """Fewer kernels, shorter step."""
    made = TraceBuilder()
    for step in range(5):
        made.annotate(f"denoising_step_{step}", 400 * step, 400)
        for index in range(4 if step == 3 else 20):
            made.launch("gemm", 400 * step + 5 + index, 400 * step + 10 + 20 * index, 20)
    outlier = report_of(made).steps[3].outlier

    assert outlier is None or "cache" in outlier
    shorter = [step for step in report_of(made).steps if step.kernel_count == 4]
    assert [step.index for step in shorter] == [3]


def test_a_name_that_promises_another_number_of_steps() -> None:
    """SGLang records one more than its file name says."""
    made = TraceBuilder(path="logs/abc-3_steps-global-rank0.trace.json.gz")
    for step in (1, 2, 3, 4):
        made.annotate(f"ProfilerStep#{step}", 100 * step, 100)
    found = findings_of(made)["recording.step_count"]

    assert found.title == "4 steps are recorded, the name says 3"
    assert "steps 1 to 4" in found.evidence


def test_a_name_that_is_right_is_no_finding() -> None:
    """Exactly as many as the name says."""
    made = TraceBuilder(path="abc-2_steps-global-rank0.trace.json.gz")
    for step in (1, 2):
        made.annotate(f"denoising_step_{step}", 100 * step, 100, ours=True)

    assert "recording.step_count" not in findings_of(made)


def test_memory_that_grows_with_every_step() -> None:
    """A callback that keeps each step's latents."""
    made = TraceBuilder()
    for step in range(4):
        made.annotate(f"denoising_step_{step}", 100 * step, 100)
        made.allocated(100 * step + 50, (1000 + 100 * step) * MIB)
    found = findings_of(made)["memory.grows"]

    assert "from 1,000 to 1,300 MiB over 4 steps" in found.evidence


def test_the_rank_that_is_waited_for_is_named_and_the_waiting_is_not_told_twice() -> None:
    """Rank 1 sits in collectives because rank 0's host is late."""
    ranks = []
    for rank in (0, 1):
        made = TraceBuilder(path=f"run-full_stages-global-rank{rank}.trace.json", rank=rank)
        for index in range(10):
            at = 100 * index
            length = 5 if rank == 0 else 60
            made.launch("ncclDevKernel_AllGather", at + 90 - length, at + 95 - length, length, stream=9)
            made.launch("gemm", at + 1, at + 6, 25)
        ranks.append(analyse_trace(made.build()))
    first, second = assemble((), (), ranks).ranks
    ids = [finding.id for finding in second.findings]

    assert first.findings[0].id == "communication.straggler"
    assert first.findings[0].title.startswith("Rank 0 is late")
    assert first.findings[0].cost_ms == pytest.approx(10 * 0.055, rel=0.1)
    assert "communication.exposed" not in ids


def test_ranks_of_different_requests_are_not_held_against_each_other() -> None:
    """Two traces without a common request id are two runs."""
    ranks = []
    for rank, length in ((0, 5), (1, 60)):
        made = TraceBuilder(path=f"{'ab'[rank]}.json", rank=rank)
        for index in range(10):
            made.launch("ncclDevKernel_AllGather", 100 * index, 100 * index + 5, length)
        ranks.append(analyse_trace(made.build()))

    assert all(
        finding.id != "communication.straggler"
        for rank in assemble((), (), ranks).ranks
        for finding in rank.findings
    )


def test_views_show_few_findings_and_a_gate_sees_all() -> None:
    """A list of hundreds hides the one that matters; what is forbidden may be the cheapest of them."""
    (rank,) = normal().ranks
    cheap = replace(rank.findings[0], id="host.sync_in_loop", cost_ms=0.001, title="the cheapest")
    many = [replace(cheap, id="kernels.gaps", cost_ms=float(at), title=f"gap {at}") for at in range(1, 20)]
    report = replace(normal(), ranks=(replace(rank, findings=(*many, cheap)),))
    for text in (render_terminal(report), render_markdown(report), render_html(report)):
        assert "the cheapest" not in text
        assert len(set(re.findall(r"gap \d+", text))) == MOST_FINDINGS


def test_what_costs_most_is_first() -> None:
    """In the report's own order."""
    made = TraceBuilder()
    end = loop(made)
    made.copy("HtoD", end, end + 10, 50000, size=1024 * MIB, pinned=False)
    made.copy("DtoD", end + 50100, end + 50110, 2000, size=MIB)
    findings = report_of(made).findings
    costs = [finding.cost_ms for finding in findings if finding.cost_ms is not None]

    assert costs == sorted(costs, reverse=True)
    assert findings[0].id == "copies.offload_exposed"
