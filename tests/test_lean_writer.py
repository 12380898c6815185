"""The lean trace: exactly the window, each call with its source, readable as any Kineto trace."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import make_run, stage, step
from stepscope.model.run import Anchor, Run
from stepscope.model.source_map import MappedCalls, Match
from stepscope.model.trace import SourceLine, Trace
from stepscope.record.kineto.origins import LEAN_OPERATORS
from stepscope.record.kineto.reader import read_kineto
from stepscope.record.trace_writing.lean_writer import write_lean_trace
from stepscope.record.trace_writing.overlap_lanes import LANE
from stepscope.record.trace_writing.trace_window import TraceClock
from stepscope.record.trace_writing.trace_writer import TraceContent

BASE_NS = 1_790_000_000_000_000_000
LINE = SourceLine(
    file="diffusers/models/x.py", line=12, function="forward", line_exact=True, module_path="transformer.a"
)
SHAPES = '{"dims":[[4,8],[8,2]],"types":["float","float"],"concrete":["",""]}'
GUESS = SourceLine(file="user.py", line=3, function="<module>", line_exact=False)


def launch(correlation: int, at: float, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 7, "ts": at, "dur": 1,
            "args": {"cbid": 211, "correlation": correlation}}  # fmt: skip


def kernel(
    correlation: int, at: float, duration: float = 2, stream: int = 3, name: str = "gemm"
) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at, "dur": duration,
            "args": {"queued": 0, "device": 0, "context": 1, "stream": stream, "correlation": correlation,
                     "registers per thread": 32, "shared memory": 16, "grid": [4, 1, 1], "block": [128, 1, 1],
                     "est. achieved occupancy %": 50}}  # fmt: skip


def copy(correlation: int, at: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 3,
            "ts": at, "dur": 2, "args": {"correlation": correlation, "bytes": 4096}}  # fmt: skip


def recording(folder: Path, events: list[dict[str, Any]]) -> Path:
    raw = folder / "raw.json"
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
        "baseTimeNanoseconds": BASE_NS,
        "environment": {"TOKEN": "secret"},
    }
    raw.write_text(json.dumps(header | {"traceEvents": events}, indent=1))
    return raw


def a_run(steps: int = 4) -> Run:
    """Steps of 100 us from 0 on, on a host clock that is the trace's own."""
    us = 1000
    run = make_run(
        [stage("DenoisingStage", 0, 0, 100 * us * steps)],
        [step(i, 100 * us * i, 100 * us * (i + 1), stage_index=0, traced=True) for i in range(steps)],
        anchors=[Anchor(unix_ns=BASE_NS, host_ns=0)],
    )
    return replace(run, ends=None)


def usual(folder: Path) -> Path:
    """Two launches a step; the device is half a step behind; a copy and a wait in each."""
    events = [{"ph": "X", "cat": "overhead", "name": "Buffer Full", "pid": -1, "tid": 0, "ts": 1, "dur": 1}]
    for index in range(4):
        at, first = 100 * index, 10 * index + 1
        events += [launch(first, at + 5), launch(first + 1, at + 30)]
        events += [launch(first + 2, at + 50, "cudaMemcpyAsync"), copy(first + 2, at + 101)]
        events += [launch(first + 3, at + 60, "cudaStreamSynchronize")]
        events += [kernel(first, at + 55), kernel(first + 1, at + 70, name="splitk")]
    return recording(folder, events)


def no_map(_trace: Trace, _clock: TraceClock) -> None:
    return None


def map_all(trace: Trace, _clock: TraceClock) -> MappedCalls:
    """The first source for every kernel's launch, the second for every wait; splitk goes on with gemm."""
    names = [trace.names[name] for name in trace.launches.name]
    order = Counter[str]()
    continues = []
    for name in names:
        order[name] += 1
        continues.append(name == "cudaLaunchKernel" and order[name] % 2 == 0)
    waits = np.array([name == "cudaStreamSynchronize" for name in names])
    size = len(names)
    return MappedCalls(
        match=np.full(size, Match.CHECKED, np.int8),
        reason=np.full(size, -1, np.int32),
        source=np.where(waits, 1, 0).astype(np.int32),
        operator=np.where(waits, -1, 1).astype(np.int32),
        shapes=np.where(waits, -1, 2).astype(np.int32),
        continues=np.array(continues, np.bool_),
        sources=(LINE, GUESS),
        operators=("unused", "aten::addmm"),
        shape_texts=('{"dims":[[1]]}', "unused", SHAPES),
    )  # fmt: skip


def write(raw: Path, folder: Path, *, mapper: Any = no_map, steps: range = range(1, 4)) -> Path:
    content = TraceContent(steps=tuple(steps), asked=len(steps))
    window, _ = write_lean_trace(raw, a_run(), content, folder, mapper)
    return Path(window.path)


def document(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("steps", [range(1, 4), range(1, 2), range(2, 4), range(4)])
def test_the_window_is_exact(tmp_path: Path, steps: range) -> None:
    """Launches of the steps, and the work that they launched, whenever it ran; nothing else."""
    trace = read_kineto(write(usual(tmp_path), tmp_path, steps=steps))

    wanted = {10 * index + number for index in steps for number in (1, 2, 3, 4)}
    assert set(trace.launches.correlation.tolist()) == wanted
    assert set(trace.kernels.correlation.tolist()) == {c for c in wanted if c % 10 in {1, 2}}
    assert set(trace.copies.correlation.tolist()) == {c for c in wanted if c % 10 == 3}
    spans = [trace.names[name] for name in trace.annotations.name]
    assert [name for name in spans if name.startswith("denoising")] == [f"denoising_step_{i}" for i in steps]


def test_times_are_those_of_the_recording(tmp_path: Path) -> None:
    """The zero moves to the window's start and the base with it: no nanosecond is lost."""
    raw = usual(tmp_path)
    before, after = read_kineto(raw), read_kineto(write(raw, tmp_path))
    assert before.base_unix_ns is not None
    assert after.base_unix_ns == BASE_NS + 100_000

    def absolute(trace: Trace) -> dict[int, tuple[int, int]]:
        kernels, base = trace.kernels, trace.base_unix_ns or 0
        starts = (base + kernels.start_ns).tolist()
        times = zip(starts, kernels.duration_ns.tolist(), strict=True)
        return dict(zip(kernels.correlation.tolist(), times, strict=True))

    assert absolute(after).items() <= absolute(before).items()


def test_what_a_kernel_was_is_kept_and_what_nobody_reads_is_not(tmp_path: Path) -> None:
    """Grid, block, registers and shared memory stay; queued, context and the environment go."""
    trace = document(write(usual(tmp_path), tmp_path))
    [args] = [
        event["args"]
        for event in trace["traceEvents"]
        if event.get("cat") == "kernel" and event["args"]["correlation"] == 11
    ]

    assert args == {
        "correlation": 11,
        "grid": [4, 1, 1],
        "block": [128, 1, 1],
        "registers per thread": 32,
        "shared memory": 16,
    }
    assert "environment" not in trace
    assert trace["deviceProperties"][0]["numSms"] == 132
    assert not any(event.get("cat") == "overhead" for event in trace["traceEvents"])


def test_arrows_lead_from_each_launch_to_its_work(tmp_path: Path) -> None:
    """Both ends carry the same id; a call that launched nothing has none; no event is spent on it."""
    events = document(write(usual(tmp_path), tmp_path))["traceEvents"]
    out = Counter(event["bind_id"] for event in events if event.get("flow_out"))
    into = Counter(event["bind_id"] for event in events if event.get("flow_in"))

    assert out == into == Counter({10 * index + number: 1 for index in range(1, 4) for number in (1, 2, 3)})
    assert not any(event["ph"] in "stf" for event in events)


def test_sources_are_read_back(tmp_path: Path) -> None:
    """Operator, module, line and shapes of every call; two launches of one operator are one operator."""
    trace = read_kineto(write(usual(tmp_path), tmp_path, mapper=map_all))
    operators = trace.operators

    assert trace.sources == (LINE, GUESS) or set(trace.sources) == {LINE, GUESS}
    names = [trace.names[name] for name in operators.name]
    assert Counter(names) == {"aten::addmm": 6, "cudaStreamSynchronize": 3}
    matmul = [row for row, name in enumerate(names) if name == "aten::addmm"]
    both_launches = operators.duration_ns[matmul[0]]
    assert both_launches == 26_000  # from the first launch at 5 to the end of the second at 31
    assert {trace.sources[operators.source[row]] for row in matmul} == {LINE}
    waits = [row for row, name in enumerate(names) if name == "cudaStreamSynchronize"]
    assert {trace.sources[operators.source[row]] for row in waits} == {GUESS}
    shapes = json.loads(trace.shapes[operators.shapes[matmul[0]]])
    assert shapes["dims"] == [[4, 8], [8, 2]]
    assert trace.has_shapes
    assert trace.metadata[LEAN_OPERATORS] is True


def test_a_slice_shows_its_source_in_words(tmp_path: Path) -> None:
    """What Perfetto shows when a kernel is clicked."""
    events = document(write(usual(tmp_path), tmp_path, mapper=map_all))["traceEvents"]
    args = next(event["args"] for event in events if event.get("cat") == "kernel")

    assert (args["operator"], args["module"]) == ("aten::addmm", "transformer.a")
    assert args["source"] == "diffusers/models/x.py:12 forward"
    assert "exact" not in args  # only said where it is not


def test_the_header_says_how_well_it_is_mapped(tmp_path: Path) -> None:
    """Calls, checked ones and those with an exact line; shapes used, and no others."""
    ours = document(write(usual(tmp_path), tmp_path, mapper=map_all))["stepscope"]

    assert ours["mapping"]["calls"] == ours["mapping"]["checked"] == 12
    assert ours["mapping"]["exact_lines"] == 9
    assert len(ours["shapes"]) == 1
    assert ours["steps"] == [1, 2, 3]


def test_work_that_overlaps_stands_on_a_lane(tmp_path: Path) -> None:
    """A reduction that begins before its GEMM has ended is read back on the stream it ran on."""
    raw = recording(
        tmp_path, [launch(1, 110), launch(2, 111), kernel(1, 120, 10), kernel(2, 129.9, 3, name="splitk")]
    )
    path = write(raw, tmp_path)
    tracks = [e["tid"] for e in document(path)["traceEvents"] if e.get("cat") == "kernel"]

    assert tracks == [3, 3 + LANE]
    assert read_kineto(path).kernels.stream.tolist() == [3, 3]


def test_work_whose_launch_was_lost_is_judged_by_its_own_start(tmp_path: Path) -> None:
    """CUPTI drops records when its buffers are full."""
    raw = recording(tmp_path, [kernel(1, 50), kernel(2, 150), launch(3, 160), kernel(3, 170), kernel(4, 500)])
    trace = read_kineto(write(raw, tmp_path))

    assert trace.kernels.correlation.tolist() == [2, 3]


def test_a_graph_launch_gives_its_source_to_every_node(tmp_path: Path) -> None:
    """One call, many kernels: all of them are bound to it."""
    raw = recording(
        tmp_path, [launch(1, 110, "cudaGraphLaunch"), kernel(1, 120), kernel(1, 125), kernel(1, 130)]
    )
    events = document(write(raw, tmp_path, mapper=map_all))["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]

    assert [event["args"]["source"] for event in kernels] == ["diffusers/models/x.py:12 forward"] * 3
    assert [event["bind_id"] for event in kernels] == [1, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 399), st.integers(0, 60), st.integers(0, 30)), max_size=20))
def test_every_launch_of_the_window_and_its_work_is_there_once(calls: list[tuple[int, int, int]]) -> None:
    """Any launches at any time, kernels any time after: the window decides by the launch alone."""
    events = [launch(1000, 150)]
    for number, (at, delay, length) in enumerate(calls):
        events += [launch(number, at), kernel(number, at + delay, length)]
    with tempfile.TemporaryDirectory() as folder:
        trace = read_kineto(write(recording(Path(folder), events), Path(folder)))

    inside = {number for number, (at, _, _) in enumerate(calls) if 100 <= at < 400}
    assert Counter(trace.launches.correlation.tolist()) == Counter([1000, *inside])
    assert Counter(trace.kernels.correlation.tolist()) == Counter(inside)


@pytest.mark.parametrize(
    "value", ["17", "true", '["x"]', '{"a":1}', '"no line here"', '"x:9999999999 f"', "null"]
)
def test_other_recorders_may_use_the_same_words(tmp_path: Path, value: str) -> None:
    """``source``, ``module`` and ``operator`` of any type on a kernel cost nothing and name no line."""
    event = (
        json.dumps(kernel(1, 120))[:-2]
        + f',"source":{value},"module":{value},"shapes":{value},"exact":{value}'
        + "}}"
    )
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"traceEvents": [launch(1, 110)]})[:-2] + "," + event + "]}")
    trace = read_kineto(path)

    assert trace.kernels.correlation.tolist() == [1]
    assert trace.sources == ()
    assert trace.warnings == ()
