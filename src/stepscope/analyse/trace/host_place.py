"""What one thread of the host was in at one moment, in words."""

from __future__ import annotations

import numpy as np

from stepscope.analyse.trace.marks import parse_frame
from stepscope.analyse.trace.nesting import NONE, HostSpans, innermost
from stepscope.analyse.trace.source_policy import is_user_frame
from stepscope.model.trace import I32, I64, Trace


def host_place(trace: Trace, process: int, thread: int, at_ns: int) -> str:
    """The runtime call, operator and user's function around a moment; empty where nothing is known."""
    call = _name_at(trace, trace.launches, trace.launches.name, (process, thread, at_ns))
    operator = _name_at(trace, trace.operators, trace.operators.name, (process, thread, at_ns))
    parts = [part for part in (call, operator) if part]
    frame = _user_frame_at(trace, process, thread, at_ns)
    described = parse_frame(frame) if frame else None
    if described is not None:
        parts.append(f"{described.function} ({described.file}:{described.line})")
    return ", ".join(parts)


def _name_at(trace: Trace, spans: HostSpans, names: I32, place: tuple[int, int, int]) -> str | None:
    row = _row_at(spans, place, np.ones(len(names), np.bool_))
    return None if row == NONE else trace.names[int(names[row])]


def _user_frame_at(trace: Trace, process: int, thread: int, at_ns: int) -> str | None:
    frames = trace.frames
    open_rows = _open_rows(frames, (process, thread, at_ns))
    users = [int(row) for row in open_rows if is_user_frame(trace.names[int(frames.name[row])])]
    return trace.names[int(frames.name[users[-1]])] if users else None


def _row_at(
    spans: HostSpans, place: tuple[int, int, int], usable: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> int:
    process, thread, at_ns = place
    rows = np.flatnonzero(usable & (spans.start_ns <= at_ns) & (spans.start_ns + spans.duration_ns > at_ns))
    found = innermost(
        spans, rows, np.array([process], np.int32), np.array([thread], np.int64), np.array([at_ns], np.int64)
    )
    return int(found[0])


def _open_rows(spans: HostSpans, place: tuple[int, int, int]) -> I64:
    """Rows open at a moment on a thread, outermost first (tables are sorted by start)."""
    process, thread, at_ns = place
    return np.flatnonzero(
        (spans.start_ns <= at_ns)
        & (spans.start_ns + spans.duration_ns > at_ns)
        & (spans.thread == thread)
        & (spans.process == process)
    )
