"""The window on a device: activities belong to the step that launched them, whenever they ran."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from runs import make_run, stage, step
from stepscope.analyse.report import analyse_trace
from stepscope.analyse.trace.earlier_work import earlier_work
from stepscope.model.run import Anchor, Run
from stepscope.record.kineto.reader import read_kineto
from stepscope.record.trace_writing.lean_writer import write_lean_trace
from stepscope.record.trace_writing.raw_export import Part, decode_event, decode_keys, split_export
from stepscope.record.trace_writing.trace_spans import HOST_TRACK
from stepscope.record.trace_writing.trace_writer import TraceContent, write_trace

KERNELS_A_STEP = 10_881
"""Launched inside each ProfilerStep of the shared trace (shared/traces/README.md)."""


def launch(correlation: int, at: float, thread: int = 7) -> dict:
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 1,
        "tid": thread,
        "ts": at,
        "dur": 1,
        "args": {"correlation": correlation},
    }


def kernel(correlation: int, at: float, duration: float, stream: int = 3, device: int = 0) -> dict:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": f"kernel {correlation}",
        "pid": device,
        "tid": stream,
        "ts": at,
        "dur": duration,
        "args": {"correlation": correlation, "stream": stream},
    }


def flow(phase: str, correlation: int) -> dict:
    return {"ph": phase, "cat": "ac2g", "name": "ac2g", "id": correlation, "pid": 1, "tid": 7, "ts": 0}


@pytest.fixture
def asynchronous(tmp_path: Path) -> tuple[Path, Run]:
    """Three steps of 10 us on the host; the device is 15 us behind, a side stream runs early."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 7, "ts": 2, "dur": 1},
        *[launch(10 + i, 10 * i + 2) for i in range(3)],
        *[kernel(10 + i, 15 + 12 * i, 10) for i in range(3)],
        launch(20, 18),
        kernel(20, 40, 2, stream=4),
        launch(21, 22),
        kernel(21, 30, 2, stream=4),
        launch(22, 15, thread=8),
        kernel(22, 16, 1, stream=5, device=1),
        kernel(99, 12, 1),
        kernel(98, 2, 1),
        *[flow(phase, correlation) for correlation in (10, 11) for phase in "sf"],
    ]
    raw = tmp_path / "raw.json"
    raw.write_text(json.dumps({"baseTimeNanoseconds": 0, "traceEvents": events}, indent=2))
    run = make_run(
        [stage("DenoisingStage", 0, 0, 30_000)],
        [step(i, 10_000 * i, 10_000 * (i + 1), stage_index=0, traced=i > 0) for i in range(3)],
        anchors=[Anchor(unix_ns=0, host_ns=0)],
    )
    return raw, replace(run, ends=None)


def written(raw: Path, run: Run, folder: Path) -> list[dict]:
    window = write_trace(
        raw, run, TraceContent(steps=tuple(i.index for i in run.steps if i.traced), asked=2), folder
    )
    return json.loads(gzip.decompress(Path(window.path).read_bytes()))["traceEvents"]


def test_activities_follow_their_launch_not_their_time(
    asynchronous: tuple[Path, Run], tmp_path: Path
) -> None:
    """Step 0's kernel runs in step 1's host time and is left out; a lost launch is judged by time."""
    events = written(*asynchronous, tmp_path / "logs")

    kernels = {e["args"]["correlation"] for e in events if e.get("cat") == "kernel"}
    assert kernels == {11, 12, 20, 21, 22, 99}
    assert {e["id"] for e in events if e.get("cat") == "ac2g"} == {11}


def test_device_spans_reach_from_first_to_last_activity_and_never_merely_overlap(
    asynchronous: tuple[Path, Run], tmp_path: Path
) -> None:
    """Step 1's side stream ends late and step 2's began early: each span on a track where it nests."""
    events = written(*asynchronous, tmp_path / "logs")
    spans = {
        (e["pid"], e["name"]): (e["ts"], e["ts"] + e["dur"], e["tid"] - HOST_TRACK)
        for e in events
        if e.get("cat") == "gpu_user_annotation"
    }
    assert spans[0, "DenoisingStage"] == (27, 49, 0)
    assert spans[0, "denoising_step_1"] == (27, 42, 0)
    assert spans[0, "denoising_step_2"] == (30, 49, 1)
    assert spans[1, "denoising_step_1"] == (16, 17, 0)
    assert (1, "denoising_step_2") not in spans


def test_a_span_with_a_thread_holds_only_that_threads_launches(
    asynchronous: tuple[Path, Run], tmp_path: Path
) -> None:
    """The launching thread is written into the span, so that a reader attributes as we did."""
    raw, run = asynchronous
    threaded = replace(
        run, steps=tuple(replace(item, span=replace(item.span, thread=7)) for item in run.steps)
    )
    events = written(raw, threaded, tmp_path / "logs")
    steps = [e for e in events if e["name"] == "denoising_step_1" and e["cat"] == "gpu_user_annotation"]

    assert [(e["pid"], e["args"]["tid"]) for e in steps] == [(0, 7)]


def test_a_step_begins_when_the_device_has_done_what_came_before(
    asynchronous: tuple[Path, Run], tmp_path: Path
) -> None:
    """The host is ahead: step 1 is issued at 10 us, and the device is at step 0's kernel until 25 us."""
    raw, run = asynchronous
    content = TraceContent(steps=(1, 2), asked=2)
    mapped = write_lean_trace(raw, run, content, tmp_path / "lean", lambda _trace, _clock: None)[0]
    for window in (write_trace(raw, run, content, tmp_path / "cut"), mapped):
        rank = analyse_trace(read_kineto(Path(window.path))).rank

        assert [step.duration_ms for step in rank.steps] == pytest.approx([0.012, 0.012])


@pytest.mark.parametrize(
    "entries",
    [7, [3], [{}], [{"at_ns": "0", "device": 0, "stream": 3, "until_ns": 25_000}],
     [{"at_ns": 0, "device": 0, "stream": 3, "until_ns": 10**30}], [{"at_ns": True}]],
)  # fmt: skip
def test_what_a_foreign_header_says_of_earlier_work_is_not_believed(
    asynchronous: tuple[Path, Run], tmp_path: Path, entries: object
) -> None:
    """Words, impossible times and other shapes are no work."""
    raw, _ = asynchronous
    trace = json.loads(raw.read_text()) | {"stepscope": {"busy_until": entries}}
    raw.write_text(json.dumps(trace))

    assert earlier_work(read_kineto(raw)) == ()


def test_between_two_denoising_stages_nothing_is_kept(asynchronous: tuple[Path, Run], tmp_path: Path) -> None:
    """A prior and a decoder: their steps are numbered on, the decoding between them is no step."""
    raw, run = asynchronous
    stages = (
        stage("DenoisingStage", 0, 0, 10_000),
        stage("DecodingStage", 1, 10_000, 20_000),
        stage("DenoisingStage", 2, 20_000, 30_000),
    )
    steps = (
        step(0, 0, 10_000, stage_index=0, traced=True),
        step(1, 20_000, 30_000, stage_index=2, traced=True),
    )
    events = written(raw, replace(run, stages=stages, steps=steps), tmp_path / "logs")
    spans = [e for e in events if e.get("cat") == "user_annotation"]

    assert {e["args"]["correlation"] for e in events if e.get("cat") == "kernel"} == {10, 12, 21, 98}
    assert [e["args"]["stage_index"] for e in spans if e["name"] == "DenoisingStage"] == [0, 2]
    assert "DecodingStage" not in {e["name"] for e in spans}


def test_a_real_gpu_trace_is_cut_to_the_kernels_of_its_steps(shared_traces: Path, tmp_path: Path) -> None:
    """Full Qwen-Image on an H200, half a million events: two steps hold twice a step's kernels."""
    raw = tmp_path / "raw.json"
    packed = shared_traces / "qwen_image_full_5_steps_ops.trace.json.gz"
    raw.write_bytes(gzip.decompress(packed.read_bytes()))
    base, spans = 0, {}
    for part, content in split_export(raw):
        if part is Part.HEADER:
            base = decode_keys(content)["baseTimeNanoseconds"]
        elif b"ProfilerStep#" in content and b'"user_annotation"' in content:
            event = decode_event(content)
            spans[int(event.name.split("#")[1])] = (event.start_ns, event.end_ns)
    ends = {i: spans[i + 1][0] if i < 5 else spans[i][1] for i in spans}  # a step ends where the next begins
    run = make_run(
        [stage("DenoisingStage", 0, spans[1][0], spans[5][1])],
        [step(i, spans[i][0], ends[i], stage_index=0, traced=i in (2, 3)) for i in sorted(spans)],
        anchors=[Anchor(unix_ns=base, host_ns=0)],
    )
    events = written(raw, replace(run, ends=None), tmp_path)
    counts = Counter(e.get("cat") for e in events)

    assert counts["kernel"] == 2 * KERNELS_A_STEP
    whole = {step.index: step.duration_ms for step in analyse_trace(read_kineto(packed)).rank.steps}
    [cut] = (tmp_path).glob("*.trace.json.gz")
    alone = {step.index: step.duration_ms for step in analyse_trace(read_kineto(cut)).rank.steps}
    assert alone == pytest.approx({2: whole[2], 3: whole[3]}, rel=0.001)
    ours = [e["name"] for e in events if e.get("args", {}).get("stepscope")]
    assert Counter(ours)["denoising_step_2"] == 2  # the host's and the device's
    assert Counter(ours)["DenoisingStage"] == 2
