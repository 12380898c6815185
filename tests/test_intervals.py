"""Interval arithmetic against plain sets of moments."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse import intervals
from stepscope.analyse.intervals import Intervals

pairs = st.lists(st.tuples(st.integers(-30, 60), st.integers(-30, 60)), max_size=12)


def build(raw: list[tuple[int, int]]) -> Intervals:
    return intervals.union([a for a, _ in raw], [b for _, b in raw])


def moments(raw: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in raw for t in range(a, b)}


def unpack(found: Intervals) -> set[int]:
    return moments(list(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)))


def assert_canonical(found: Intervals) -> None:
    assert found.start_ns.dtype == found.end_ns.dtype == np.int64
    assert (found.end_ns > found.start_ns).all()
    assert (found.start_ns[1:] > found.end_ns[:-1]).all()


@given(pairs)
def test_union_covers_exactly_the_given_moments(raw: list[tuple[int, int]]) -> None:
    """The union holds each covered moment once, whatever the order, overlap or reversal of its parts."""
    found = build(raw)
    assert_canonical(found)
    assert unpack(found) == moments(raw)
    assert found.total_ns == len(moments(raw))


@given(pairs, pairs)
def test_intersection_and_subtraction_are_those_of_sets(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    """Both operations agree with set arithmetic and stay disjoint and sorted."""
    both = intervals.intersection(build(a), build(b))
    rest = intervals.subtraction(build(a), build(b))
    assert_canonical(both)
    assert_canonical(rest)
    assert unpack(both) == moments(a) & moments(b)
    assert unpack(rest) == moments(a) - moments(b)
    assert both.total_ns + rest.total_ns == build(a).total_ns


@given(pairs, pairs)
def test_union_of_sets_and_clip(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    """Sets can be joined, and cut to a window."""
    joined = intervals.union_of(build(a), build(b))
    assert_canonical(joined)
    assert unpack(joined) == moments(a) | moments(b)
    assert unpack(intervals.clip(joined, 0, 20)) == (moments(a) | moments(b)) & set(range(20))
    assert unpack(intervals.gaps(joined, 0, 20)) == set(range(20)) - moments(a) - moments(b)


@given(pairs, pairs)
def test_covered_time_of_many_windows(a: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    """Each window gets the covered time inside it, as if it were asked alone."""
    found = intervals.covered_ns(build(a), [x for x, _ in windows], [y for _, y in windows])
    assert found.tolist() == [len(moments(a) & set(range(x, y))) for x, y in windows]


@given(pairs, st.lists(st.integers(-40, 70), max_size=10))
def test_contains_is_membership(a: list[tuple[int, int]], at: list[int]) -> None:
    """A start is inside, an end is not."""
    assert intervals.contains(build(a), at).tolist() == [t in moments(a) for t in at]


def test_an_empty_set_has_no_span() -> None:
    """Nothing covered: no length, no span, and every operation stays empty."""
    none = intervals.union([], [])
    assert (none.total_ns, none.span_ns, len(none)) == (0, 0, 0)
    assert len(intervals.intersection(none, none)) == len(intervals.union_of()) == 0


def test_times_of_a_real_clock_keep_their_nanoseconds() -> None:
    """Unix nanoseconds do not pass through a float."""
    base = 1_790_000_000_000_000_001
    found = intervals.union([base, base + 5], [base + 6, base + 9])
    assert (found.start_ns.tolist(), found.total_ns, found.span_ns) == ([base], 9, 9)
