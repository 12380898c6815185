"""Overlaps on one stream: clipped for sums, and counted.

A stream runs its kernels one after the other, except where the next is allowed to begin early (programmatic
dependent launch), and some recorders let durations run over (ROCm). Sums over kernels would count such time
twice; unions do not. For sums, a kernel ends at the latest where the next of its stream begins.
"""

from __future__ import annotations

import numpy as np

from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.model.trace import I64


def clipped_durations(work: GpuWork) -> tuple[I64, int]:
    """Durations without same-stream overlap, one per row of the work, and how many rows were clipped."""
    duration = work.end_ns - work.start_ns
    if len(work) < 2:
        return duration, 0
    order = np.lexsort((work.end_ns, work.start_ns, work.stream, work.device, work.process))
    after, before = order[1:], order[:-1]
    same = (
        (work.stream[after] == work.stream[before])
        & (work.device[after] == work.device[before])
        & (work.process[after] == work.process[before])
    )
    over = same & (work.end_ns[before] > work.start_ns[after])
    clipped = duration.copy()
    clipped[before[over]] = work.start_ns[after[over]] - work.start_ns[before[over]]
    return clipped, int(np.count_nonzero(over))
