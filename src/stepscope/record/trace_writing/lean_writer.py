"""Writes a lean recording from its columns: the exact window, each call's source, our spans, compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.model.run import Run, TraceWindow
from stepscope.model.source_map import MappedCalls, MappingSummary
from stepscope.model.trace import Copies, Kernels, Trace
from stepscope.record.atomic import atomic_path
from stepscope.record.kineto.reader import read_kineto
from stepscope.record.trace_writing.busy_until import busy_until, moved
from stepscope.record.trace_writing.lean_events import (
    DeviceWork,
    LeanTrace,
    Origins,
    Rows,
    copy_events,
    kernel_events,
    launch_events,
    operator_events,
)
from stepscope.record.trace_writing.overlap_lanes import LANE, overlap_lanes
from stepscope.record.trace_writing.raw_export import read_keys
from stepscope.record.trace_writing.trace_spans import (
    DEVICE_TRACK_NAME,
    HOST_TRACK_NAME,
    TraceSpan,
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
    CUT_OFF_NOTE,
    TraceContent,
    TracePlan,
    plan_trace,
    stepscope_header,
    trace_clock,
    window_note,
    write_events,
)

MapCalls = Callable[[Trace, TraceClock], MappedCalls | None]
"""Given the recording and its clock: what made each call, or None where there is no map."""

KEPT_HEADER = (
    "schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version", "cuda_driver_version",
    "roctracer_version", "rocprofiler_version", "hip_runtime_version", "hip_driver_version", "trace_id",
    "host_name", "distributedInfo", "displayTimeUnit",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Recording:
    """What was recorded, on which clock, and what is known of its calls."""

    trace: Trace
    clock: TraceClock
    mapped: MappedCalls | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cut:
    """What of a recording is written."""

    window: Intervals
    launches: Rows
    bound: Rows  # launches whose work is written
    kernels: DeviceWork
    copies: DeviceWork
    operators: Rows

    def calls(self, trace: Trace) -> Rows:
        """Rows of the launches, or of the operators where nothing was launched."""
        return self.launches if len(trace.launches.start_ns) else self.operators


def write_lean_trace(
    raw: Path, run: Run, content: TraceContent, directory: Path, map_calls: MapCalls
) -> tuple[TraceWindow, MappingSummary | None]:
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
        summary = _write(temporary, plan, _Recording(trace=trace, clock=clock, mapped=mapped), header)
    whole = not any(warning.kind == "truncated" for warning in trace.warnings)
    note = window_note(content, plan.steps, len(run.steps)) if whole else CUT_OFF_NOTE
    written = TraceWindow(
        path=str(path.resolve()),
        steps=plan.steps,
        full_stages=content.full_stages,
        asked=content.asked,
        note=note,
    )
    return written, summary


def anchors_of(trace: Trace) -> list[int]:
    """Starts of the anchors in a recording, rising."""
    if ANCHOR not in trace.names:
        return []
    name = trace.names.index(ANCHOR)
    tables = (trace.annotations, trace.operators)
    return sorted(int(at) for table in tables for at in table.start_ns[table.name == name])


def _write(
    path: Path, plan: TracePlan, recording: _Recording, header: dict[str, Any]
) -> MappingSummary | None:
    trace, mapped = recording.trace, recording.mapped
    cut = _cut(trace, recording.clock.intervals(plan.window))
    start_ns = cut.window.starts[0]
    ours = stepscope_header(
        plan, cut.window.moved(-start_ns), sum(w.count for w in trace.warnings if w.kind == "malformed_event")
    )
    everything = _survey(trace, _all_rows(trace.kernels), _all_rows(trace.copies))
    ours |= {"busy_until": moved(busy_until(everything, cut.window), -start_ns)}
    summary = None
    if mapped is not None:
        mapped, shapes = _used_shapes(mapped)
        summary = mapped.summary(cut.calls(trace))
        ours |= {
            "mapping": asdict(summary),
            "shapes": [msgspec.Raw(text.encode()) for text in shapes],
        }
    header |= {
        "baseTimeNanoseconds": (trace.base_unix_ns or 0) + start_ns,
        "traceName": plan.name,
        "stepscope": ours,
    }
    origins = Origins.none(trace) if mapped is None else Origins.of(mapped)
    events = _events(
        LeanTrace(trace=trace, start_ns=start_ns, origins=origins),
        cut,
        _spans(plan, recording, cut, start_ns),
    )
    write_events(path, header, events)
    return summary


def _cut(trace: Trace, window: Intervals) -> _Cut:
    """Host events by their start, device events by their launch (by their own start where it was lost)."""
    launches = np.flatnonzero(_inside(window, trace.launches.start_ns))
    kept = np.zeros(len(trace.launches.start_ns) + 1, np.bool_)
    kept[launches] = True

    def chosen(table: Kernels | Copies) -> tuple[Rows, Rows]:
        launch = _launch_rows(trace, table)
        return np.flatnonzero(np.where(launch >= 0, kept[launch], _inside(window, table.start_ns))), launch

    (kernels, kernel_launch), (copies, copy_launch) = chosen(trace.kernels), chosen(trace.copies)
    kernel_lane, copy_lane = _lanes(trace, kernels, copies)
    bound = np.concatenate((kernel_launch[kernels], copy_launch[copies]))
    anchor = trace.names.index(ANCHOR) if ANCHOR in trace.names else -1
    operators = _inside(window, trace.operators.start_ns) & (trace.operators.name != anchor)
    return _Cut(
        window=window,
        launches=launches,
        bound=np.unique(bound[bound >= 0]),
        kernels=DeviceWork(rows=kernels, launch=kernel_launch, lane=kernel_lane),
        copies=DeviceWork(rows=copies, launch=copy_launch, lane=copy_lane),
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


def _events(lean: LeanTrace, cut: _Cut, spans: Iterator[bytes]) -> Iterator[bytes]:
    yield from _metadata(lean.trace, cut)
    yield from spans
    if len(lean.trace.launches.start_ns):
        yield from launch_events(lean, cut.launches, cut.bound)
        yield from kernel_events(lean, cut.kernels)
        yield from copy_events(lean, cut.copies)
    else:
        yield from operator_events(lean, cut.operators)


def _spans(plan: TracePlan, recording: _Recording, cut: _Cut, start_ns: int) -> Iterator[bytes]:
    """Our stages, steps and forwards, on the host's track and on each device's."""
    trace = recording.trace
    spans = host_spans(plan.run, recording.clock, cut.window, plan.steps)
    process = trace.processes[0] if trace.processes else 0
    yield from span_events(
        _moved(spans, -start_ns), process=process, category="user_annotation", track_name=HOST_TRACK_NAME
    )
    for device, on_device in sorted(
        device_spans(spans, _survey(trace, cut.kernels.rows, cut.copies.rows)).items()
    ):
        yield from span_events(
            _moved(on_device, -start_ns),
            process=device,
            category=DEVICE_ANNOTATION,
            track_name=DEVICE_TRACK_NAME,
        )


def _moved(spans: list[TraceSpan], by_ns: int) -> list[TraceSpan]:
    return [replace(span, start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns) for span in spans]


def _all_rows(table: Kernels | Copies) -> Rows:
    return np.arange(len(table.start_ns))


def _survey(trace: Trace, kernels: Rows, copies: Rows) -> Survey:
    """The columns that device spans are made of, of some kernels and copies."""
    launches = trace.launches
    correlation, device, stream, start_ns, duration_ns = _device_columns(
        trace, kernels, copies, ("correlation", "device", "stream", "start_ns", "duration_ns")
    )
    return Survey(
        header={},
        process=0,
        anchors_ns=(),
        correlations=launches.correlation,
        launch_ns=launches.start_ns,
        launch_thread=launches.thread,
        activity_correlation=correlation,
        activity_device=device,
        activity_stream=stream,
        activity_start_ns=start_ns,
        activity_end_ns=start_ns + duration_ns,
        malformed=0,
        whole=True,
        stack_threads=frozenset(),
    )


def _device_columns(trace: Trace, kernels: Rows, copies: Rows, names: Sequence[str]) -> list[Rows]:
    """Columns of some kernels followed by those of some copies."""
    return [
        np.concatenate((getattr(trace.kernels, name)[kernels], getattr(trace.copies, name)[copies])).astype(
            np.int64
        )
        for name in names
    ]


def _lanes(trace: Trace, kernels: Rows, copies: Rows) -> tuple[Rows, Rows]:
    """What is added to the stream's number of each kernel and each copy, by row."""
    start_ns, duration_ns, device, stream = _device_columns(
        trace, kernels, copies, ("start_ns", "duration_ns", "device", "stream")
    )
    added = LANE * overlap_lanes(device, stream, start_ns, start_ns + duration_ns)
    lanes = (np.zeros(len(trace.kernels.start_ns), np.int64), np.zeros(len(trace.copies.start_ns), np.int64))
    lanes[0][kernels], lanes[1][copies] = added[: len(kernels)], added[len(kernels) :]
    return lanes


def _metadata(trace: Trace, cut: _Cut) -> Iterator[bytes]:
    """Names of processes and tracks, and their order: the host first, then the devices."""
    for process in trace.processes:
        yield _meta("process_name", process, 0, {"name": "python"})
        yield _meta("process_sort_index", process, 0, {"sort_index": 0})
    streams: set[tuple[int, int, int]] = set()
    for table, work in ((trace.kernels, cut.kernels), (trace.copies, cut.copies)):
        columns = (table.device[work.rows], table.stream[work.rows], work.lane[work.rows])
        distinct = np.unique(np.stack(columns, axis=1), axis=0)
        streams |= {(int(device), int(stream), int(lane)) for device, stream, lane in distinct}
    for device in sorted({device for device, _, _ in streams}):
        yield _meta("process_name", device, 0, {"name": f"GPU {device}"})
        yield _meta("process_sort_index", device, 0, {"sort_index": 1000 + device})
    for device, stream, lane in sorted(streams):
        overlap = f", overlapping ({lane // LANE})" if lane else ""
        yield _meta("thread_name", device, stream + lane, {"name": f"stream {stream}{overlap}"})


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
