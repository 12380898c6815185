"""Writes a lean recording from its columns: the exact window, each call's source, our spans, compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from isal import igzip
from numpy.typing import NDArray

from stepscope.model.run import Run, TraceWindow
from stepscope.model.source_map import MappedCalls
from stepscope.model.trace import Copies, Kernels, Trace
from stepscope.record.atomic import atomic_path
from stepscope.record.kineto.reader import read_kineto
from stepscope.record.trace_writing.lean_events import (
    Origins,
    Rows,
    copy_events,
    kernel_events,
    launch_events,
    operator_events,
)
from stepscope.record.trace_writing.raw_export import read_keys
from stepscope.record.trace_writing.trace_spans import (
    DEVICE_TRACK_NAME,
    HOST_TRACK_NAME,
    device_spans,
    host_spans,
    span_events,
)
from stepscope.record.trace_writing.trace_window import (
    ANCHOR,
    DEVICE_ANNOTATION,
    Intervals,
    Survey,
    TraceClock,
)
from stepscope.record.trace_writing.trace_writer import (
    COMPRESSION_LEVEL,
    CUT_OFF_NOTE,
    TraceContent,
    TracePlan,
    batches,
    plan_trace,
    stepscope_header,
    trace_clock,
    window_note,
)

MapCalls = Callable[[Trace, TraceClock], MappedCalls | None]
"""Given the recording and its clock: what made each call, or None where there is no map."""

KEPT_HEADER = (
    "schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version", "cuda_driver_version",
    "roctracer_version", "rocprofiler_version", "hip_runtime_version", "hip_driver_version", "trace_id",
    "host_name", "distributedInfo", "displayTimeUnit",
)  # fmt: skip
LANE = 1_000_000
"""Added to the number of a stream for work that overlaps other work on it, once for each lane."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cut:
    """What of a recording is written."""

    window: Intervals
    launches: Rows
    bound: Rows  # launches whose work is written
    kernels: Rows
    copies: Rows
    kernel_launch: Rows  # by row of the kernels: its launch, -1 unknown
    copy_launch: Rows
    operators: Rows


def write_lean_trace(
    raw: Path, run: Run, content: TraceContent, directory: Path, map_calls: MapCalls
) -> tuple[TraceWindow, MappedCalls | None]:
    """Write the trace of a run into ``directory``, and say what is in it and how well it is mapped.

    Args:
        raw: the profiler's own uncompressed export, left where it is.
        run: tells the spans and the clock anchors.
        content: what the trace is to hold.
        directory: where the file goes; created where it is missing.
        map_calls: finds what made each call.

    Raises:
        RunFailedError: nothing was recorded, or the directory cannot be written.
        UnreadableInputError: ``raw`` is not a profiler export.

    """
    plan, path = plan_trace(run, content, directory)
    trace = read_kineto(raw)
    clock = trace_clock(plan, anchors_of(trace), trace.base_unix_ns or 0)
    mapped = map_calls(trace, clock)
    header = {key: value for key, value in read_keys(raw).items() if key in KEPT_HEADER}
    with atomic_path(path) as temporary:
        _write(trace, temporary, plan, clock, mapped, header)
    whole = not any(warning.kind == "truncated" for warning in trace.warnings)
    note = window_note(content, plan.steps) if whole else CUT_OFF_NOTE
    written = TraceWindow(
        path=str(path.resolve()),
        steps=plan.steps,
        full_stages=content.full_stages,
        asked=content.asked,
        note=note,
    )
    return written, mapped


def anchors_of(trace: Trace) -> list[int]:
    """Starts of the anchors in a recording, rising."""
    if ANCHOR not in trace.names:
        return []
    name = trace.names.index(ANCHOR)
    tables = (trace.annotations, trace.operators)
    return sorted(int(at) for table in tables for at in table.start_ns[table.name == name])


def _write(
    trace: Trace,
    path: Path,
    plan: TracePlan,
    clock: TraceClock,
    mapped: MappedCalls | None,
    header: dict[str, Any],
) -> None:
    cut = _cut(trace, clock.intervals(plan.window))
    start_ns = cut.window.starts[0]
    shown = Intervals(
        tuple(at - start_ns for at in cut.window.starts), tuple(at - start_ns for at in cut.window.ends)
    )
    ours = stepscope_header(plan, shown, sum(w.count for w in trace.warnings if w.kind == "malformed_event"))
    if mapped is not None:
        mapped, shapes = _used_shapes(mapped)
        ours |= {"mapping": asdict(mapped.summary), "shapes": [msgspec.Raw(text.encode()) for text in shapes]}
    header |= {
        "baseTimeNanoseconds": (trace.base_unix_ns or 0) + start_ns,
        "traceName": plan.name,
        "stepscope": ours,
    }
    with igzip.open(path, "wb", compresslevel=COMPRESSION_LEVEL) as stream:
        stream.write(msgspec.json.encode(header).removesuffix(b"}") + b',"traceEvents":[\n')
        separator = b""
        for batch in batches(_events(trace, cut, plan, clock, start_ns, mapped)):
            stream.write(separator + b",\n".join(batch))
            separator = b",\n"
        stream.write(b"\n]}\n")


def _cut(trace: Trace, window: Intervals) -> _Cut:
    """Host events by their start, device events by their launch (by their own start where it was lost)."""
    launches = np.flatnonzero(_inside(window, trace.launches.start_ns))
    kept = np.zeros(len(trace.launches.start_ns) + 1, np.bool_)
    kept[launches] = True
    kernel_launch, copy_launch = _launch_rows(trace, trace.kernels), _launch_rows(trace, trace.copies)
    kernels = np.flatnonzero(
        np.where(kernel_launch >= 0, kept[kernel_launch], _inside(window, trace.kernels.start_ns))
    )
    copies = np.flatnonzero(
        np.where(copy_launch >= 0, kept[copy_launch], _inside(window, trace.copies.start_ns))
    )
    bound = np.concatenate((kernel_launch[kernels], copy_launch[copies]))
    anchor = trace.names.index(ANCHOR) if ANCHOR in trace.names else -1
    operators = _inside(window, trace.operators.start_ns) & (trace.operators.name != anchor)
    return _Cut(
        window=window,
        launches=launches,
        bound=np.unique(bound[bound >= 0]),
        kernels=kernels,
        copies=copies,
        kernel_launch=kernel_launch,
        copy_launch=copy_launch,
        operators=np.flatnonzero(operators),
    )


def _inside(window: Intervals, at_ns: Rows) -> NDArray[np.bool_]:
    edges = np.array(
        [edge for pair in zip(window.starts, window.ends, strict=True) for edge in pair], np.int64
    )
    inside: NDArray[np.bool_] = np.searchsorted(edges, at_ns, side="right") % 2 == 1
    return inside


def _launch_rows(trace: Trace, table: Kernels | Copies) -> Rows:
    """The launch of each row by its correlation; one process writes one file."""
    launches = trace.launches
    found = np.full(len(table.correlation), -1, np.int64)
    if len(launches.correlation) and len(found):
        order = np.argsort(launches.correlation, kind="stable")
        place = np.searchsorted(launches.correlation, table.correlation, sorter=order)
        row = order[np.minimum(place, len(order) - 1)]
        linked = (launches.correlation[row] == table.correlation) & (table.correlation >= 0)
        found[linked] = row[linked]
    return found


def _events(
    trace: Trace,
    cut: _Cut,
    plan: TracePlan,
    clock: TraceClock,
    start_ns: int,
    mapped: MappedCalls | None,
) -> Iterator[bytes]:
    origins = Origins.none(trace) if mapped is None else Origins.of(mapped)
    lanes = _lanes(trace, cut)
    yield from _metadata(trace, cut, lanes)
    spans = host_spans(plan.run, clock, cut.window, plan.steps)
    process = trace.processes[0] if trace.processes else 0
    moved = [
        replace(span, start_ns=span.start_ns - start_ns, end_ns=span.end_ns - start_ns) for span in spans
    ]
    yield from span_events(moved, process=process, category="user_annotation", track_name=HOST_TRACK_NAME)
    for device, on_device in sorted(device_spans(spans, _survey(trace, cut)).items()):
        moved = [
            replace(span, start_ns=span.start_ns - start_ns, end_ns=span.end_ns - start_ns)
            for span in on_device
        ]
        yield from span_events(
            moved, process=device, category=DEVICE_ANNOTATION, track_name=DEVICE_TRACK_NAME
        )
    if len(trace.launches.start_ns):
        yield from launch_events(trace, cut.launches, start_ns, origins, cut.bound)
        yield from kernel_events(trace, cut.kernels, start_ns, origins, cut.kernel_launch, lanes[0])
        yield from copy_events(trace, cut.copies, start_ns, origins, cut.copy_launch, lanes[1])
    else:
        yield from operator_events(trace, cut.operators, start_ns, origins)


def _survey(trace: Trace, cut: _Cut) -> Survey:
    """The columns that device spans are made of."""
    kernels, copies, launches = trace.kernels, trace.copies, trace.launches

    def both(name: str) -> Rows:
        rows = (getattr(kernels, name)[cut.kernels], getattr(copies, name)[cut.copies])
        return np.concatenate(rows).astype(np.int64)

    start_ns = both("start_ns")
    return Survey(
        header={},
        process=0,
        anchors_ns=(),
        correlations=launches.correlation,
        launch_ns=launches.start_ns,
        launch_thread=launches.thread,
        activity_correlation=both("correlation"),
        activity_device=both("device"),
        activity_start_ns=start_ns,
        activity_end_ns=start_ns + both("duration_ns"),
        malformed=0,
        whole=True,
    )


def _lanes(trace: Trace, cut: _Cut) -> tuple[Rows, Rows]:
    """What is added to the stream's number: 0, or a lane of its own for work that overlaps earlier work.

    Work may overlap on one stream (programmatic dependent launch); viewers drop such slices from one track.
    """
    lanes = (np.zeros(len(trace.kernels.start_ns), np.int64), np.zeros(len(trace.copies.start_ns), np.int64))
    table = np.concatenate((np.zeros(len(cut.kernels), np.int64), np.ones(len(cut.copies), np.int64)))
    rows = np.concatenate((cut.kernels, cut.copies))
    start, duration, device, stream = (
        np.concatenate((getattr(trace.kernels, name)[cut.kernels], getattr(trace.copies, name)[cut.copies]))
        for name in ("start_ns", "duration_ns", "device", "stream")
    )
    order = np.lexsort((start, stream, device))
    ends: list[int] = []
    where: tuple[int, int] | None = None
    for index in order[_may_overlap(start[order], (start + duration)[order])].tolist():
        here = (int(device[index]), int(stream[index]))
        if here != where:
            where, ends = here, []
        lane = next((at for at, end in enumerate(ends) if end <= start[index]), len(ends))
        ends[lane : lane + 1] = [int(start[index] + duration[index])]
        lanes[table[index]][rows[index]] = lane * LANE
    return lanes


def _may_overlap(start_ns: Rows, end_ns: Rows) -> NDArray[np.bool_]:
    """Rows near an overlap with a neighbour; the rest needs no look."""
    if not len(start_ns):
        return np.empty(0, np.bool_)
    reach = np.maximum.accumulate(end_ns)
    late = np.concatenate(([False], start_ns[1:] < reach[:-1]))
    return late | np.append(late[1:], False)  # the last row has no next one


def _metadata(trace: Trace, cut: _Cut, lanes: tuple[Rows, Rows]) -> Iterator[bytes]:
    """Names of processes and tracks, and their order: the host first, then the devices."""
    for process in trace.processes:
        yield _meta("process_name", process, 0, {"name": "python"})
        yield _meta("process_sort_index", process, 0, {"sort_index": 0})
    streams: set[tuple[int, int, int]] = set()
    for table, rows, lane in (
        (trace.kernels, cut.kernels, lanes[0]),
        (trace.copies, cut.copies, lanes[1]),
    ):
        distinct = np.unique(np.stack((table.device[rows], table.stream[rows], lane[rows]), axis=1), axis=0)
        streams |= {(int(device), int(stream), int(extra)) for device, stream, extra in distinct}
    for device in sorted({device for device, _, _ in streams}):
        yield _meta("process_name", device, 0, {"name": f"GPU {device}"})
        yield _meta("process_sort_index", device, 0, {"sort_index": 1000 + device})
    for device, stream, extra in sorted(streams):
        overlap = f", overlapping ({extra // LANE})" if extra else ""
        yield _meta("thread_name", device, stream + extra, {"name": f"stream {stream}{overlap}"})


def _meta(name: str, process: int, thread: int, arguments: dict[str, Any]) -> bytes:
    return msgspec.json.encode(
        {"ph": "M", "name": name, "ts": 0, "pid": process, "tid": thread, "args": arguments}
    )


def _used_shapes(mapped: MappedCalls) -> tuple[MappedCalls, list[str]]:
    """The same with a table of shapes that holds only those used."""
    used, index = np.unique(mapped.shapes, return_inverse=True)
    texts = [mapped.shape_texts[shape] for shape in used.tolist() if shape >= 0]
    shapes = index.reshape(-1) - (1 if len(used) and used[0] < 0 else 0)
    return replace(mapped, shapes=shapes.astype(np.int32), shape_texts=tuple(texts)), texts
