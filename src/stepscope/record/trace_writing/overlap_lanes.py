"""Work that overlaps on one stream, on tracks of its own: viewers drop such slices from one track.

It is legal and usual: a split-K GEMM's reduction is launched to begin while the GEMM ends (programmatic
dependent launch). Perfetto's importer counts each dropped slice as an error, the badge on raw exports.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

LANE = 1_000_000
"""Added to the number of a stream, once for each lane beyond its own."""


def overlap_lanes(device: I64, stream: I64, start_ns: I64, end_ns: I64) -> I64:
    """The lane of each slice: 0, or more where earlier work of its stream has not ended."""
    lanes = np.zeros(len(start_ns), np.int64)
    order = np.lexsort((start_ns, stream, device))
    ends: list[int] = []
    where: tuple[int, int] | None = None
    for index in order[_near_overlap(start_ns[order], end_ns[order])].tolist():
        here = (int(device[index]), int(stream[index]))
        if here != where:
            where, ends = here, []
        lane = next((at for at, end in enumerate(ends) if end <= start_ns[index]), len(ends))
        ends[lane : lane + 1] = [int(end_ns[index])]
        lanes[index] = lane
    return lanes


def _near_overlap(start_ns: I64, end_ns: I64) -> NDArray[np.bool_]:
    """Slices that may overlap, and the one before each; the rest needs no look."""
    if not len(start_ns):
        return np.empty(0, np.bool_)
    late = np.concatenate(([False], start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]))
    near: NDArray[np.bool_] = late | np.append(late[1:], np.False_)  # the last one has no next
    return near
