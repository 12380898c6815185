"""Innermost interval at a moment: the vectorised look-up against the obvious loop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.trace.nesting import NONE, NestedSpans, innermost
from traces import TraceBuilder

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=20)


def nested(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals that can be kept so that any two are apart or one holds the other."""
    kept: list[tuple[int, int]] = []
    for start, length in sorted(intervals, key=lambda one: (one[0], -one[1])):
        end = start + length
        if all(end <= other[1] or start >= other[1] for other in kept):
            kept.append((start, end))
    return kept


def obvious(spans: list[tuple[int, int]], at: int) -> int:
    """The row of the holder that started last; of equal starts the shortest."""
    holders = [(start, -end, row) for row, (start, end) in enumerate(spans) if start <= at < end]
    return max(holders)[2] if holders else NONE


@given(INTERVALS, st.lists(st.integers(-1, 95), max_size=20))
def test_the_innermost_of_nested_intervals_is_the_last_started_that_is_open(
    intervals: list[tuple[int, int]], moments: list[int]
) -> None:
    """Equal intervals may answer with either of them, so spans are compared, not rows."""
    spans = nested(intervals)
    look_up = NestedSpans(
        np.arange(len(spans)),
        np.array([s for s, _ in spans], np.int64),
        np.array([e for _, e in spans], np.int64),
    )

    found = look_up.innermost(np.array(moments, np.int64))

    assert [spans[row] if row != NONE else None for row in found] == [
        spans[row] if (row := obvious(spans, at)) != NONE else None for at in moments
    ]


@given(INTERVALS, st.lists(st.integers(0, 95), max_size=20))
def test_overlapping_intervals_give_a_holder_whenever_there_is_one(
    intervals: list[tuple[int, int]], moments: list[int]
) -> None:
    """Misnested ranges (pytorch #174555) lose no moment that some range holds."""
    spans = [(start, start + length) for start, length in intervals]
    look_up = NestedSpans(
        np.arange(len(spans)),
        np.array([s for s, _ in spans], np.int64),
        np.array([e for _, e in spans], np.int64),
    )

    for at, row in zip(moments, look_up.innermost(np.array(moments, np.int64)), strict=True):
        if row == NONE:
            assert obvious(spans, at) == NONE
        else:
            assert spans[row][0] <= at < spans[row][1]


def test_threads_and_processes_do_not_see_each_other() -> None:
    """The same moment on another thread or in another process lies in nothing."""
    made = TraceBuilder()
    made.operator("aten::add", 0, 10)
    trace = made.build()

    found = innermost(
        trace.operators,
        np.array([0]),
        np.array([0, 0, 1], np.int32),
        np.array([1, 2, 1]),
        np.array([5000] * 3),
    )

    assert found.tolist() == [0, NONE, NONE]
