"""Which of many nested host intervals is innermost at a moment, answered for all moments at once.

Operators, Python frames and annotations of one thread nest. Instead of walking a stack event by event, each
interval gets its depth from two sorted searches; at any moment the innermost open interval is the last one
to have started at the depth that is open then. Cost: a few sorts, whatever the number of moments.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stepscope.model.trace import I32, I64

NONE = -1
"""No row: the moment lies in no interval."""


class HostSpans(Protocol):
    """The columns that operators, frames, annotations, launches and synchronisations share."""

    @property
    def process(self) -> I32: ...
    @property
    def thread(self) -> I64: ...
    @property
    def start_ns(self) -> I64: ...
    @property
    def duration_ns(self) -> I64: ...


class NestedSpans:
    """The intervals of one thread, ready for look-ups. ``rows`` are what a look-up answers with."""

    def __init__(self, rows: I64, start_ns: I64, end_ns: I64) -> None:
        end_ns = np.maximum(end_ns, start_ns + 1)
        order = np.lexsort((-end_ns, start_ns))
        self._rows, self._start, self._end = rows[order], start_ns[order], end_ns[order]
        self._sorted_end = np.sort(self._end)
        closed = np.searchsorted(self._sorted_end, self._start, side="right")
        depth = np.maximum(np.arange(len(order)) - closed, 0)
        self._levels = int(depth.max()) + 1 if len(depth) else 0
        # Keys sort by depth, then by start: the last key not above (depth, moment) is the candidate.
        self._by_depth = np.lexsort((np.arange(len(depth)), depth))
        self._keys = depth[self._by_depth] * (len(depth) + 1) + self._by_depth

    def innermost(self, at_ns: I64) -> I64:
        """The row of the innermost interval that holds each moment, ``NONE`` where none does."""
        found = np.full(len(at_ns), NONE, np.int64)
        if not self._levels:
            return found
        rank = np.searchsorted(self._start, at_ns, side="right") - 1
        level = rank - np.searchsorted(self._sorted_end, at_ns, side="right")
        candidate = self._at_level(level, rank, at_ns)
        unresolved = np.flatnonzero((candidate == NONE) & (rank >= 0))
        # Only intervals that overlap without nesting (mended or misnested ranges) get here.
        for deeper in range(self._levels - 1, -1, -1):
            if not len(unresolved):
                break
            again = self._at_level(
                np.full(len(unresolved), deeper, np.int64), rank[unresolved], at_ns[unresolved]
            )
            candidate[unresolved] = again
            unresolved = unresolved[again == NONE]
        inside = candidate != NONE
        found[inside] = self._rows[candidate[inside]]
        return found

    def _at_level(self, level: I64, rank: I64, at_ns: I64) -> I64:
        """The position of the interval of this depth that holds each moment, or ``NONE``."""
        query = level * (len(self._start) + 1) + rank
        position = np.searchsorted(self._keys, query, side="right") - 1
        candidate = self._by_depth[np.maximum(position, 0)]
        held = (
            (position >= 0)
            & (level >= 0)
            & (self._keys[np.maximum(position, 0)] >= level * (len(self._start) + 1))
            & (self._start[candidate] <= at_ns)
            & (self._end[candidate] > at_ns)
        )
        result: I64 = np.where(held, candidate, NONE)
        return result


def thread_keys(process: NDArray[np.int_] | I32, thread: I64) -> tuple[I64, list[tuple[int, int]]]:
    """One small integer per row for its (process, thread), and what each integer stands for."""
    if not len(thread):
        return np.empty(0, np.int64), []
    threads, thread_code = np.unique(thread, return_inverse=True)
    combined = process.astype(np.int64) * len(threads) + thread_code
    keys, code = np.unique(combined, return_inverse=True)
    pairs = [(int(key // len(threads)), int(threads[key % len(threads)])) for key in keys]
    return code.astype(np.int64), pairs


def innermost(spans: HostSpans, rows: I64, process: I32, thread: I64, at_ns: I64) -> I64:
    """For each (process, thread, moment) the innermost of ``spans[rows]`` that holds it, else ``NONE``.

    Args:
        spans: The table of nested intervals.
        rows: Which rows of it take part, (m,).
        process: Process index of each moment, (n,).
        thread: Thread of each moment, (n,).
        at_ns: The moments, (n,).

    Returns:
        Rows of ``spans``, (n,).

    """
    found = np.full(len(at_ns), NONE, np.int64)
    if not len(rows) or not len(at_ns):
        return found
    span_code, span_pairs = thread_keys(spans.process[rows], spans.thread[rows])
    query_code, query_pairs = thread_keys(process, thread)
    index_of = {pair: code for code, pair in enumerate(span_pairs)}
    for code, pair in enumerate(query_pairs):
        if pair not in index_of:
            continue
        mine = rows[span_code == index_of[pair]]
        asked = query_code == code
        nested = NestedSpans(mine, spans.start_ns[mine], spans.start_ns[mine] + spans.duration_ns[mine])
        found[asked] = nested.innermost(at_ns[asked])
    return found
