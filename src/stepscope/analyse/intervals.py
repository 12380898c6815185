"""Sets of moments as sorted, disjoint, half-open intervals ``[start, end)`` in integer nanoseconds.

Kernels on one device overlap (several streams, programmatic dependent launch), so busy time is the length
of a union, never a sum. Everything here is vectorised and costs one sort at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Disjoint, non-touching, non-empty intervals in ascending order; both columns have the same length."""

    start_ns: I64
    end_ns: I64

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def lengths_ns(self) -> I64:
        """The length of each interval."""
        return self.end_ns - self.start_ns

    @property
    def total_ns(self) -> int:
        """The time covered."""
        return int(self.lengths_ns.sum())

    @property
    def span_ns(self) -> int:
        """From the first start to the last end; 0 where there is no interval."""
        return int(self.end_ns[-1] - self.start_ns[0]) if len(self) else 0


def union(start_ns: ArrayLike, end_ns: ArrayLike) -> Intervals:
    """The moments covered by any of the given intervals, in any order; empty and reversed ones cover none."""
    start, end = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
    kept = end > start
    start, end = start[kept], end[kept]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(start[opens], reach[closes])


def union_of(*parts: Intervals) -> Intervals:
    """The moments covered by any of the given sets."""
    if not parts:
        return EMPTY
    return union(np.concatenate([p.start_ns for p in parts]), np.concatenate([p.end_ns for p in parts]))


def intersection(left: Intervals, right: Intervals) -> Intervals:
    """The moments covered by both sets."""
    return _where(left, right, lambda in_left, in_right: in_left & in_right)


def subtraction(left: Intervals, right: Intervals) -> Intervals:
    """The moments covered by ``left`` and not by ``right``."""
    return _where(left, right, lambda in_left, in_right: in_left & ~in_right)


def clip(intervals: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The part inside the window ``[start_ns, end_ns)``."""
    return union(np.maximum(intervals.start_ns, start_ns), np.minimum(intervals.end_ns, end_ns))


def gaps(intervals: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The moments of the window ``[start_ns, end_ns)`` that no interval covers."""
    return subtraction(union([start_ns], [end_ns]), intervals)


def covered_ns(intervals: Intervals, start_ns: ArrayLike, end_ns: ArrayLike) -> I64:
    """How much of each window ``[start_ns[i], end_ns[i])`` is covered; windows may overlap. 0 if reversed."""
    start, end = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
    covered: I64 = np.maximum(_covered_before(intervals, end) - _covered_before(intervals, start), 0)
    return covered


def contains(intervals: Intervals, at_ns: ArrayLike) -> Mask:
    """Whether each moment is covered."""
    at = np.asarray(at_ns, np.int64)
    if not len(intervals):
        return np.zeros(at.shape, np.bool_)
    index = np.searchsorted(intervals.start_ns, at, side="right") - 1
    inside: Mask = (index >= 0) & (at < intervals.end_ns[np.maximum(index, 0)])
    return inside


def _covered_before(intervals: Intervals, at: I64) -> I64:
    """The time covered before each moment."""
    if not len(intervals):
        return np.zeros(at.shape, np.int64)
    done = np.concatenate(([0], np.cumsum(intervals.lengths_ns)))
    index = np.searchsorted(intervals.start_ns, at, side="right") - 1
    safe = np.maximum(index, 0)
    inside = np.minimum(at, intervals.end_ns[safe]) - intervals.start_ns[safe]
    before: I64 = np.where(index >= 0, done[safe] + inside, 0)
    return before


def _where(left: Intervals, right: Intervals, keep: Callable[[Mask, Mask], Mask]) -> Intervals:
    """The pieces between any two neighbouring bounds for which ``keep`` holds, joined where they touch."""
    # np.unique hashes integers since numpy 2.3, several times slower than sorting millions of them.
    bounds = np.sort(np.concatenate((left.start_ns, left.end_ns, right.start_ns, right.end_ns)))
    if len(bounds):
        bounds = bounds[np.concatenate(([True], bounds[1:] != bounds[:-1]))]
    if len(bounds) < 2:
        return EMPTY
    pieces = bounds[:-1]
    kept = keep(contains(left, pieces), contains(right, pieces))
    return union(pieces[kept], bounds[1:][kept])


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
"""No moment at all."""
