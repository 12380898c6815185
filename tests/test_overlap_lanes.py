"""Work that overlaps on a stream gets lanes."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.record.trace_writing.overlap_lanes import overlap_lanes

SLICES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(7, 8), st.integers(0, 60), st.integers(0, 12)), max_size=40
)


def lanes(slices: list[tuple[int, int, int, int]]) -> list[int]:
    device, stream, start, length = np.array(slices, np.int64).reshape(-1, 4).T
    return overlap_lanes(device, stream, start, start + length).tolist()


@given(SLICES)
def test_no_two_slices_of_a_lane_overlap(slices: list[tuple[int, int, int, int]]) -> None:
    """On each device, stream and lane one slice ends before the next begins; lanes are used from 0 up."""
    by_track: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for (device, stream, start, length), lane in zip(slices, lanes(slices), strict=True):
        by_track.setdefault((device, stream, lane), []).append((start, start + length))
    for track, held in by_track.items():
        held.sort()
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(held))
        assert track[2] == 0 or (*track[:2], track[2] - 1) in by_track


def test_work_in_turn_stays_on_its_stream() -> None:
    """Nothing is moved that need not be; streams do not disturb each other."""
    assert lanes([(0, 7, 0, 5), (0, 7, 5, 5), (0, 8, 3, 9), (1, 7, 2, 9)]) == [0, 0, 0, 0]


def test_a_reduction_that_begins_early_stands_apart() -> None:
    """Programmatic dependent launch: the reduction begins 0.1 us before its GEMM ends."""
    assert lanes([(0, 7, 0, 4160), (0, 7, 4063, 120), (0, 7, 4200, 10)]) == [0, 1, 0]
