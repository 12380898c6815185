"""The path of modules around many moments at once, from the frames of their calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.analyse.trace.attribute import MODULE_DEPTH, HostPlaces
from stepscope.analyse.trace.nesting import NONE, innermost, thread_keys
from stepscope.analyse.trace.source_policy import is_module_frame, module_class
from stepscope.model.trace import I64, Trace


def module_paths_at(trace: Trace, place: HostPlaces) -> tuple[I64, Sequence[str], I64]:
    """For each place the id of its path, outermost class first (``NONE``: none); the paths; calls of each."""
    frames = trace.frames
    named = np.array([is_module_frame(name) for name in trace.names] or [False], np.bool_)
    rows = np.flatnonzero(named[frames.name]) if len(frames.name) else np.empty(0, np.int64)
    ids, texts = _paths(trace, rows)
    found = innermost(frames, rows, place.process, place.thread, place.at_ns)
    of_frame = np.full(len(frames.name) + 1, NONE, np.int64)  # the last one for no frame
    of_frame[rows] = ids
    return of_frame[found], texts, np.bincount(ids, minlength=len(texts))


def _paths(trace: Trace, rows: I64) -> tuple[I64, Sequence[str]]:
    """The path id of each module's call, and the paths. ``rows`` are in order of start: each thread nests."""
    frames, names = trace.frames, trace.names
    code, threads = thread_keys(frames.process[rows], frames.thread[rows])
    stacks: list[list[tuple[int, int, str]]] = [[] for _ in threads]  # end, depth, path
    texts: dict[str, int] = {}
    ids = np.full(len(rows), NONE, np.int64)
    starts = frames.start_ns[rows]
    ends = starts + frames.duration_ns[rows]
    for at in np.lexsort((-ends, starts)):
        stack = stacks[int(code[at])]
        while stack and stack[-1][0] <= starts[at]:
            stack.pop()
        _, depth, around = stack[-1] if stack else (0, 0, "")
        name = module_class(names[int(frames.name[rows[at]])])
        path = around if depth >= MODULE_DEPTH else f"{around}.{name}" if around else name
        ids[at] = texts.setdefault(path, len(texts))
        stack.append((int(ends[at]), depth + 1, path))
    return ids, tuple(texts)
