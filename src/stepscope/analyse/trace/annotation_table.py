"""Annotations by name: how long on the host, what was launched inside, how busy that kept the GPUs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.intervals import contains, union
from stepscope.analyse.results import AnnotationRow
from stepscope.analyse.trace.gpu_time import busy_ns_by
from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.nesting import NONE
from stepscope.model.trace import Trace

MOST = 64
"""Names listed at most, those that took longest."""


def annotation_rows(trace: Trace, work: GpuWork) -> tuple[AnnotationRow, ...]:
    """The longest annotations by name, in order of their total time on the host."""
    table = trace.annotations
    names, inverse = np.unique(table.name, return_inverse=True)
    host_ns = np.bincount(inverse, weights=table.duration_ns, minlength=len(names))
    longest = np.argsort(-host_ns, kind="stable")[:MOST]
    rows = []
    for index in longest:
        inside = _launched_inside(trace, work, int(names[index]))
        rows.append(
            AnnotationRow(
                name=trace.names[int(names[index])],
                count=int(np.count_nonzero(inverse == index)),
                host_ms=float(host_ns[index]) / 1e6,
                kernel_count=int(np.count_nonzero(inside[: work.kernel_count])),
                gpu_busy_ms=busy_ns_by(work, np.where(inside, 0, NONE).astype(np.int32), 1)[0] / 1e6,
            )
        )
    return tuple(rows)


def _launched_inside(trace: Trace, work: GpuWork, name: int) -> NDArray[np.bool_]:
    """Work launched inside any range of this name on the range's own thread."""
    table = trace.annotations
    inside = np.zeros(len(work), np.bool_)
    mine = table.name == name
    for thread in np.unique(table.thread[mine]):
        rows = np.flatnonzero(mine & (table.thread == thread))
        ranges = union(table.start_ns[rows], table.start_ns[rows] + table.duration_ns[rows])
        inside |= (work.launch != NONE) & (work.thread == thread) & contains(ranges, work.issue_ns)
    return inside
