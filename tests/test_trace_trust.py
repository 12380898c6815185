"""The first line of a report: whether a trace's numbers may be trusted, and why not."""

from dataclasses import replace

import pytest

from stepscope.analyse.report import analyse_trace, assemble
from stepscope.analyse.results import RunSummary, StepTime, Trust
from stepscope.model.trace import ReaderWarning
from traces import TraceBuilder


def untrusted(made: TraceBuilder) -> str:
    return " | ".join(analyse_trace(made.build()).untrusted)


def busy(made: TraceBuilder, count: int = 20) -> None:
    for index in range(count):
        made.launch("gemm", 10 * index, 10 * index + 5, 4)


def test_a_consistent_trace_is_trusted() -> None:
    """Every launch has its kernel and every kernel its launch."""
    made = TraceBuilder()
    busy(made)

    assert untrusted(made) == ""


def test_launches_without_kernels_are_lost_events() -> None:
    """Kineto drops events that it finds out of range."""
    made = TraceBuilder()
    busy(made)
    for index in range(5):
        made.call("cudaLaunchKernel", 500 + index)

    assert "5 of 25 launches have no kernel" in untrusted(made)


def test_launches_during_capture_run_nothing_by_themselves() -> None:
    """Capturing a graph is not losing events."""
    made = TraceBuilder()
    busy(made)
    made.call("cudaStreamBeginCapture", 500)
    for index in range(50):
        made.call("cudaLaunchKernel", 510 + index)
    made.call("cudaStreamEndCapture", 600)

    assert untrusted(made) == ""


def test_kernels_without_launches_in_mid_recording_are_lost_host_events() -> None:
    """Not those that were launched before the recording began."""
    made = TraceBuilder()
    for index in range(5):
        made.kernel("before", index, 0.5)
    made.thread = 1
    for index in range(20):
        made.launch("gemm", 10 + 10 * index, 15 + 10 * index, 4)
    assert untrusted(made) == ""

    for index in range(5):
        made.kernel("lost", 100 + index, 1, stream=9)

    assert "5 of 30 kernels have no launch" in untrusted(made)


def test_kernels_that_begin_before_their_launch_mean_two_clocks() -> None:
    """Host and device time do not agree."""
    made = TraceBuilder()
    for index in range(10):
        made.launch("gemm", 10 * index + 5, 10 * index, 4)

    assert "clocks of host and device disagree" in untrusted(made)


@pytest.mark.parametrize("kind", ["truncated", "damaged_compression", "malformed_event"])
def test_a_damaged_file_is_not_trusted_and_counts_as_incomplete(kind: str) -> None:
    """What could be read is reported, with a warning."""
    made = TraceBuilder(warnings=(ReaderWarning(kind=kind, text="cut", count=3),))
    busy(made)
    found = analyse_trace(made.build())

    assert found.untrusted == ("cut (3 times)",)
    assert found.incomplete == found.untrusted


def test_a_few_skipped_events_are_a_warning_not_a_reason() -> None:
    """One unescaped quote in half a million events spoils nothing."""
    made = TraceBuilder(warnings=(ReaderWarning(kind="malformed_event", text="skipped one"),))
    busy(made, count=100)
    found = analyse_trace(made.build())

    assert found.untrusted == found.incomplete == ()
    assert "skipped one" in found.warnings


def test_kernels_hidden_in_graphs_are_doubt_but_nothing_is_missing() -> None:
    """Nsight in graph mode records a graph as one piece of work."""
    made = TraceBuilder(warnings=(ReaderWarning(kind="graph_mode", text="graphs hide kernels"),))
    busy(made)
    found = analyse_trace(made.build())

    assert found.untrusted == ("graphs hide kernels",)
    assert found.incomplete == ()


def test_a_gpu_that_was_used_but_not_recorded() -> None:
    """Launches and no kernel at all."""
    made = TraceBuilder()
    made.call("cudaLaunchKernel", 0)

    assert untrusted(made) == "no GPU events, though 1 launches were recorded: they were lost"


def test_a_stage_faster_than_its_device_can_be_is_not_believed() -> None:
    """A 16k cubed product in a microsecond: its kernels are missing."""
    made = TraceBuilder()
    made.annotate("DenoisingStage", 0, 100)
    dims = "[[16384, 16384], [16384, 16384]]"
    shapes = f'{{"dims": {dims}, "types": ["c10::BFloat16", "c10::BFloat16"], "concrete": ["", ""]}}'
    made.operator("aten::mm", 5, 10, shapes=shapes)
    made.launch("gemm", 6, 20, 1)
    reason = untrusted(made)

    assert "DenoisingStage would have reached" in reason
    assert "H200" in reason


def run_with(step_ms: float) -> RunSummary:
    return RunSummary(
        request_id="abc", path=None, producer="sglang", total_ms=1, trust=Trust(ok=True), stages=(),
        steps=(StepTime(index=1, stage_index=0, duration_ms=step_ms),), step_statistics=None,
        dominant_stage=None,
    )  # fmt: skip


def test_a_dumps_step_shorter_than_its_work_on_the_gpu_is_an_enqueue_time() -> None:
    """The trace of the same request disproves it."""
    made = TraceBuilder(path="abc-1_steps-global-rank0.trace.json")
    made.annotate("denoising_step_1", 0, 100)
    made.launch("gemm", 5, 10, 4000)
    trace = analyse_trace(made.build())

    assert "step 1 took 0.1 ms by the dump" in assemble((), [run_with(0.1)], [trace]).trust.reasons[0]
    assert assemble((), [run_with(4.0)], [trace]).trust.ok


def test_a_dump_of_another_request_proves_nothing() -> None:
    """Only the same request id is compared."""
    made = TraceBuilder(path="other-1_steps-global-rank0.trace.json")
    made.annotate("denoising_step_1", 0, 100)
    made.launch("gemm", 5, 10, 4000)

    assert assemble((), [run_with(0.1)], [analyse_trace(made.build())]).trust.ok


def test_one_untrusted_run_makes_the_report_untrusted_and_says_which() -> None:
    """Reasons carry the name of what they are about where there are several."""
    bad = replace(run_with(1), trust=Trust(ok=False, reasons=("sums disagree",)))
    report = assemble((), [run_with(1), bad], [])

    assert not report.trust.ok
    assert report.trust.reasons == ("abc: sums disagree",)


def test_a_run_without_a_request_id_goes_by_its_file() -> None:
    """SGLang's offline dumps may name no request."""
    bad = replace(run_with(1), request_id="", path="logs/perf.json", trust=Trust(ok=False, reasons=("bad",)))

    assert assemble((), [run_with(1), bad], []).trust.reasons == ("logs/perf.json: bad",)


def test_what_stepscope_wrote_into_the_header_is_said() -> None:
    """Random weights, an incomplete run, and the request whatever the file is called now."""
    made = TraceBuilder(path="renamed.json")
    busy(made)
    header = {"request_id": "abc", "load_format": "dummy", "incomplete_reason": "out of memory"}
    found = analyse_trace(replace(made.build(), metadata={"stepscope": header}))

    assert found.rank.request_id == "abc"
    assert any("random weights" in remark for remark in found.warnings)
    assert any("out of memory" in remark for remark in found.warnings)
