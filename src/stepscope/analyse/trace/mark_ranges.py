"""Annotations and Python frames whose names say something, as ranges on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analyse.trace.marks import Mark, MarkKind, annotation_mark, frame_mark
from stepscope.analyse.trace.nesting import NONE, innermost
from stepscope.analyse.trace.source_policy import is_module_frame, module_class
from stepscope.model.trace import I32, I64, Trace
from stepscope.model.vocabulary import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpan:
    """An interval on one thread of the host, half-open."""

    process: int
    thread: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRange:
    """One range and what its name stands for."""

    mark: Mark
    span: HostSpan
    ours: bool = False


SMALL_FORWARD = 0.2
"""A module class whose longest call is below this share of the longest of all is not the denoiser."""

_NO_DENOISER = frozenset(
    (
        Stage.TEXT_ENCODING.value,
        Stage.IMAGE_ENCODING.value,
        Stage.IMAGE_VAE_ENCODING.value,
        Stage.DECODING.value,
    )
)


def annotation_ranges(trace: Trace) -> list[MarkRange]:
    """The annotations that speak of stages, steps or forwards, in order of start."""
    table = trace.annotations
    marks = _marks_of(trace, table.name, annotation_mark)
    rows = np.flatnonzero(np.isin(table.name, list(marks)))
    return [
        MarkRange(
            mark=marks[int(table.name[row])],
            span=HostSpan(
                process=int(table.process[row]),
                thread=int(table.thread[row]),
                start_ns=int(table.start_ns[row]),
                end_ns=int(table.start_ns[row] + table.duration_ns[row]),
            ),
            ours=bool(table.ours[row]),
        )
        for row in rows
    ]


def frame_ranges(trace: Trace) -> list[MarkRange]:
    """The Python frames that speak of stages or of a scheduler's step, in order of start."""
    marks = _marks_of(trace, trace.frames.name, frame_mark)
    rows = np.flatnonzero(np.isin(trace.frames.name, list(marks)))
    return [
        MarkRange(mark=marks[int(trace.frames.name[row])], span=_frame_span(trace, int(row))) for row in rows
    ]


def forward_ranges(
    trace: Trace, stages: Sequence[tuple[str, HostSpan]], framed: Sequence[MarkRange]
) -> list[MarkRange]:
    """The denoiser's forwards: outermost calls of the large modules that lie in no encoder or decoder."""
    frames = trace.frames
    module_names = [int(name) for name in np.unique(frames.name) if is_module_frame(trace.names[int(name)])]
    rows = np.flatnonzero(np.isin(frames.name, module_names))
    if not len(rows):
        return []
    # One nanosecond earlier, a module's own call is not yet open: what holds it is its parent.
    parent = innermost(frames, rows, frames.process[rows], frames.thread[rows], frames.start_ns[rows] - 1)
    rows = rows[parent == NONE]
    excluded = [span for name, span in stages if name in _NO_DENOISER]
    excluded += [found.span for found in framed if found.mark.name in _NO_DENOISER]
    for span in excluded:
        start = frames.start_ns[rows]
        rows = rows[(start < span.start_ns) | (start >= span.end_ns) | (frames.process[rows] != span.process)]
    if not len(rows):
        return []
    rows = rows[_large(frames.name[rows], frames.duration_ns[rows])]
    return [
        MarkRange(
            mark=Mark(kind=MarkKind.FORWARD, name=module_class(trace.names[int(frames.name[row])])),
            span=_frame_span(trace, int(row)),
        )
        for row in rows
    ]


def outermost(ranges: Sequence[MarkRange]) -> list[MarkRange]:
    """The ranges that lie in no other range of the same mark's kind on their thread, in order of start."""
    kept: list[MarkRange] = []
    reach: dict[tuple[int, int], int] = {}
    for found in sorted(ranges, key=lambda found: (found.span.start_ns, -found.span.end_ns)):
        thread = (found.span.process, found.span.thread)
        if found.span.start_ns >= reach.get(thread, -(2**62)):
            kept.append(found)
            reach[thread] = found.span.end_ns
    return kept


def without_repeats(ranges: Sequence[MarkRange]) -> list[MarkRange]:
    """The ranges without those inside another of the same name: a stage that an engine marks twice."""
    names = {found.mark.name for found in ranges}
    kept = [one for name in names for one in outermost([r for r in ranges if r.mark.name == name])]
    return sorted(kept, key=lambda found: (found.span.start_ns, -found.span.end_ns))


def _large(names: I32, durations_ns: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows whose name's longest duration is not small against the longest of all."""
    distinct, inverse = np.unique(names, return_inverse=True)
    longest = np.zeros(len(distinct), np.int64)
    np.maximum.at(longest, inverse, durations_ns)
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = (longest >= SMALL_FORWARD * longest.max())[inverse]
    return result


def _marks_of(trace: Trace, names: I32, read: Callable[[str], Mark | None]) -> dict[int, Mark]:
    """The names that have a meaning; each distinct name is read once."""
    meanings = ((int(name), read(trace.names[int(name)])) for name in np.unique(names))
    return {name: mark for name, mark in meanings if mark is not None}


def _frame_span(trace: Trace, row: int) -> HostSpan:
    frames = trace.frames
    start_ns = int(frames.start_ns[row])
    return HostSpan(
        process=int(frames.process[row]),
        thread=int(frames.thread[row]),
        start_ns=start_ns,
        end_ns=start_ns + int(frames.duration_ns[row]),
    )
