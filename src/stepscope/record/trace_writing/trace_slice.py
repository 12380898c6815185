"""Cuts a PyTorch Profiler trace to intervals of host time, events byte for byte, links and metadata kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from isal import igzip

from stepscope.record.atomic import atomic_path
from stepscope.record.trace_writing.raw_export import Part, split_export
from stepscope.record.trace_writing.trace_spans import (
    DEVICE_TRACK_NAME,
    HOST_TRACK_NAME,
    TraceSpan,
    device_spans,
    span_events,
)
from stepscope.record.trace_writing.trace_window import (
    DEVICE_ANNOTATION,
    Intervals,
    Survey,
    WindowCut,
    survey_export,
)
from stepscope.record.unpacked import unpacked

COMPRESSION_LEVEL = 2
_WRITE_EVENTS = 4096
_LAST_LAUNCHES = 16  # enough that each busy stream is among them


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMark:
    """A stage, step or forward that was found in the trace. Times are trace ns, ids those of the system."""

    name: str
    process: int
    thread: int
    start_ns: int
    end_ns: int
    inferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What is kept: host intervals in trace ns, the steps in them, and what was asked for in words."""

    intervals: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]
    what: str
    marks: tuple[SliceMark, ...] = ()  # to be written, where the trace has no spans of ours


def slice_kineto(trace: Path, output: Path, wanted: Slice) -> int:
    """Write the part of ``trace`` inside the intervals to ``output``; the number of events written.

    Host events are kept by their own start, device events by their launch, ranges that reach into an interval
    are clipped to it. ``output`` is gzip where its name ends in .gz.

    Raises:
        UnreadableInputError: ``trace`` is no PyTorch Profiler export.
        RunFailedError: ``output`` cannot be written, or the temporary directory is full.

    """
    with unpacked(trace) as plain, atomic_path(output) as temporary:
        survey = survey_export(plain)
        window = Intervals.union(wanted.intervals)
        header = survey.header | {"stepscope": _header(survey.header, trace, wanted, window)}
        cut = WindowCut(survey, window)
        cut.launched |= last_before(survey, window)
        events = chain(_kept(plain, cut), _marks(wanted, survey, window))
        return write_events(temporary, header, events, packed=output.suffix == ".gz")


def write_events(path: Path, header: dict[str, Any], events: Iterator[bytes], *, packed: bool) -> int:
    """Write a whole trace file: header keys, then the events one a line; the number of events."""
    count = 0
    with igzip.open(path, "wb", compresslevel=COMPRESSION_LEVEL) if packed else path.open("wb") as stream:
        stream.write(msgspec.json.encode(header).removesuffix(b"}") + b',"traceEvents":[\n')
        batch: list[bytes] = []
        for event in events:
            batch.append(event)
            if len(batch) == _WRITE_EVENTS:
                stream.write((b",\n" if count else b"") + b",\n".join(batch))
                count += len(batch)
                batch.clear()
        if batch:
            stream.write((b",\n" if count else b"") + b",\n".join(batch))
        stream.write(b"\n]}\n")
    return count + len(batch)


def _kept(plain: Path, cut: WindowCut) -> Iterator[bytes]:
    for part, event in split_export(plain):
        kept = cut.keep(event) if part is Part.EVENT else None
        if kept is not None:
            yield kept


def last_before(survey: Survey, window: Intervals) -> set[int]:
    """Correlations of the work that each device was last busy with when the window's first launch was made.

    Without it the device would seem to have been idle then: a step would begin too early.
    """
    if not window.starts or not len(survey.correlations):
        return set()
    before = survey.launch_ns < window.starts[0]
    early = dict(zip(survey.correlations[before].tolist(), survey.launch_ns[before].tolist(), strict=True))
    launched_ns = np.array([early.get(one, -1) for one in survey.activity_correlation.tolist()], np.int64)
    found: set[int] = set()
    for device in np.unique(survey.activity_device[launched_ns >= 0]).tolist():
        rows = np.flatnonzero((launched_ns >= 0) & (survey.activity_device == device))
        last = rows[np.argsort(launched_ns[rows], kind="stable")][-_LAST_LAUNCHES:]
        longest = rows[np.argmax(survey.activity_end_ns[rows])]
        found.update(survey.activity_correlation[np.append(last, longest)].tolist())
    return found


def _marks(wanted: Slice, survey: Survey, window: Intervals) -> Iterator[bytes]:
    """The marks as spans of ours, on the host and where their work ran."""
    for process in sorted({mark.process for mark in wanted.marks}):
        spans = [
            TraceSpan(
                name=mark.name, start_ns=parts[0][0], end_ns=parts[-1][1], thread=mark.thread,
                arguments={"inferred": "yes"} if mark.inferred else {},
            )
            for mark in wanted.marks
            if mark.process == process and (parts := window.clip(mark.start_ns, mark.end_ns))
        ]  # fmt: skip
        yield from span_events(spans, process=process, category="user_annotation", track_name=HOST_TRACK_NAME)
        for device, on_device in sorted(device_spans(spans, survey).items()):
            yield from span_events(
                on_device, process=device, category=DEVICE_ANNOTATION, track_name=DEVICE_TRACK_NAME
            )


def _header(header: dict[str, Any], trace: Path, wanted: Slice, window: Intervals) -> dict[str, Any]:
    """Our own part of the header: what it said before, of the events that are left."""
    before = header.get("stepscope")
    inferred = sorted({mark.name for mark in wanted.marks if mark.inferred})
    ours: dict[str, Any] = dict(before) if isinstance(before, dict) else {}
    recorded = ours.get("steps")
    kept = [step for step in recorded if step in wanted.steps] if isinstance(recorded, list) else None
    return ours | {
        "sliced": {"from": trace.name, "what": wanted.what, "inferred": inferred},
        "window": tuple(zip(window.starts, window.ends, strict=True)),
        **({} if kept is None else {"steps": kept}),
    }
