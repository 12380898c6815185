"""What a cause costs: time that passed, never more than the time it is looked for in.

Idle time and kernels are counted on every stream and device; costs are not their sums. Of several devices the
mean is taken, of kernels side by side the time that any of them ran, and what reaches beyond the stages or
steps a finding speaks of is left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stepscope.analyse.intervals import Intervals, covered_ns, intersection, union
from stepscope.analyse.trace.analysis import Analysis, Window
from stepscope.model.trace import I64


def moments(windows: Iterable[Window]) -> Intervals:
    """The time that windows cover."""
    pairs = [(window.start_ns, window.end_ns) for window in windows]
    return union([start_ns for start_ns, _ in pairs], [end_ns for _, end_ns in pairs])


def gap_cost_ns(found: Analysis, cause_ns: I64, inside: Intervals | None = None) -> int:
    """Idle time of one cause, ``cause_ns`` for each gap; of a gap that is partly inside, that share."""
    gaps = found.gaps
    share = np.ones(len(gaps))
    if inside is not None:
        length = np.maximum(gaps.end_ns - gaps.start_ns, 1)
        share = covered_ns(inside, gaps.start_ns, gaps.end_ns) / length
    return int((cause_ns * share).sum()) // max(len(found.devices), 1)


def kernels_ns(found: Analysis, rows: I64, inside: Intervals | None = None) -> int:
    """The time in which any of these kernels ran; on several devices the mean."""
    total = 0
    for device in found.work.devices:
        here = rows[found.work.device[rows] == device]
        ran = union(found.work.start_ns[here], found.work.end_ns[here])
        total += (ran if inside is None else intersection(ran, inside)).total_ns
    return total // max(len(found.devices), 1)
