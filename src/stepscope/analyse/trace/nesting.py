"""Which of many nested host intervals is innermost at a moment, answered for all moments at once.

Operators, Python frames and annotations of one thread nest. Instead of walking a stack event by event, all
moments are looked up together. Cost: one sort and a few passes for each doubling of the number of intervals.
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
    """The intervals of one thread, ready for look-ups. ``rows`` are what a look-up answers with.

    The innermost interval at a moment is the last one to have started of those still open: with intervals in
    order of start, the rightmost at or before the moment's place whose end lies beyond it. A tree of maxima
    of ends finds it in as many steps as the tree has levels, for all moments together; nothing is assumed of
    intervals that overlap without nesting (mended or misnested ranges).
    """

    def __init__(self, rows: I64, start_ns: I64, end_ns: I64) -> None:
        end_ns = np.maximum(end_ns, start_ns + 1)
        order = np.lexsort((-end_ns, start_ns))
        self._rows, self._start = rows[order], start_ns[order]
        self._maxima = [end_ns[order]]
        while len(self._maxima[-1]) > 1:
            below = self._maxima[-1]
            if len(below) % 2:
                below = np.append(below, np.iinfo(np.int64).min)
                self._maxima[-1] = below
            self._maxima.append(np.maximum(below[::2], below[1::2]))

    def innermost(self, at_ns: I64) -> I64:
        """The row of the innermost interval that holds each moment, ``NONE`` where none does."""
        found = np.full(len(at_ns), NONE, np.int64)
        if not len(self._rows):
            return found
        # Blocks of the tree left of each moment's place, from the nearest on: one of each size at most.
        before = np.searchsorted(self._start, at_ns, side="right").astype(np.int64)
        open_queries = np.arange(len(at_ns))
        for level, maxima in enumerate(self._maxima):
            left = before[open_queries]
            complete = (left >> level) & 1 == 1
            block = np.maximum((left >> level) - 1, 0)
            held = complete & (maxima[np.minimum(block, len(maxima) - 1)] > at_ns[open_queries])
            answered = open_queries[held]
            found[answered] = self._rows[self._rightmost(level, block[held], at_ns[answered])]
            before[open_queries] = np.where(complete, left - (1 << level), left)
            open_queries = open_queries[~held]
            if not len(open_queries):
                break
        return found

    def _rightmost(self, level: int, block: I64, at_ns: I64) -> I64:
        """The position of the rightmost interval in each block whose end lies beyond the moment."""
        for below in range(level - 1, -1, -1):
            right = 2 * block + 1
            block = np.where(self._maxima[below][right] > at_ns, right, 2 * block)
        return block


def thread_keys(process: NDArray[np.int_] | I32, thread: I64) -> tuple[I64, list[tuple[int, int]]]:
    """One small integer per row for its (process, thread), and what each integer stands for."""
    if not len(thread):
        return np.empty(0, np.int64), []
    threads = _distinct(thread)
    combined = process.astype(np.int64) * len(threads) + np.searchsorted(threads, thread)
    keys = _distinct(combined)
    pairs = [(int(key // len(threads)), int(threads[key % len(threads)])) for key in keys]
    return np.searchsorted(keys, combined).astype(np.int64), pairs


def _distinct(values: I64) -> I64:
    """The distinct values, sorted. Threads come in long runs, so only where one begins is sorted."""
    begins = np.concatenate(([True], values[1:] != values[:-1]))
    distinct: I64 = np.unique(values[begins])
    return distinct


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
