"""Device memory over time, and its peak in a window."""

from __future__ import annotations

import numpy as np

from stepscope.analyse.results import MemoryPoint
from stepscope.model.trace import I64, Trace

ALLOCATED = "allocated_bytes"
"""The counter that readers give the allocator's allocated bytes."""

POINTS = 400
"""A drawing needs no more; each point is the peak of its slice."""


def memory_samples(trace: Trace) -> tuple[I64, I64]:
    """Times and allocated bytes of the device that had most allocated; empty without samples."""
    counters = trace.counters
    wanted = [index for index in np.unique(counters.name) if trace.names[int(index)] == ALLOCATED]
    rows = np.flatnonzero(np.isin(counters.name, wanted) & (counters.device >= 0))
    if not len(rows):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    device = counters.device[rows[int(np.argmax(counters.value[rows]))]]
    rows = rows[counters.device[rows] == device]
    rows = rows[np.argsort(counters.at_ns[rows], kind="stable")]
    return counters.at_ns[rows], counters.value[rows].astype(np.int64)


def memory_points(at_ns: I64, allocated: I64, origin_ns: int) -> tuple[MemoryPoint, ...]:
    """The samples thinned to their peaks."""
    if not len(at_ns):
        return ()
    slice_of = (np.arange(len(at_ns)) * POINTS) // max(len(at_ns), POINTS)
    order = np.lexsort((allocated, slice_of))
    last = np.flatnonzero(np.concatenate((slice_of[order][1:] != slice_of[order][:-1], [True])))
    peaks = order[last]
    return tuple(
        MemoryPoint(at_ms=float(at_ns[row] - origin_ns) / 1e6, allocated_bytes=int(allocated[row]))
        for row in peaks
    )


def peak_between(at_ns: I64, allocated: I64, start_ns: int, end_ns: int) -> int | None:
    """The most that was allocated in a host interval, what was held as it began included; None unknown."""
    first, last = np.searchsorted(at_ns, (start_ns, end_ns))
    first = max(int(first) - 1, 0)
    return int(allocated[first:last].max()) if last > first else None
