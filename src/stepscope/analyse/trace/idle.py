"""Why a GPU was idle: each gap between busy stretches, charged to what the host was doing.

A gap ends with some work; the host was late if it launched that work only after the gap had begun (or so
shortly before that the launch itself was still on its way). Of such a gap, time inside allocating calls is
allocation. Time inside synchronising calls is synchronising, and so is as much of what follows as the host
had been blocked before the gap: without that wait it would have been so much further. That is an upper bound
on what removing the call can win, and never more than the gap itself: a synchronisation that costs no idle
time costs nothing. The rest is the host being late. A gap whose work was queued in time is the device's own:
the end of one kernel and the start of the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.intervals import covered_ns, gaps, union
from stepscope.analyse.trace.gpu_time import DeviceTime
from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.host_waits import BlockingCalls, allocating_calls, allocation_time
from stepscope.analyse.trace.nesting import NONE, thread_keys
from stepscope.model.trace import I64, Trace

LAUNCH_PERCENTILE = 5
"""The launch latency of an idle device is taken to be this percentile of launch call to kernel start."""

LAUNCH_AT_MOST_NS = 20_000
"""A launch on an idle device takes 5 to 10 us; where the host is always ahead, the rest is queueing."""


class Cause(str, Enum):
    """What a gap is charged to, as the report names it."""

    HOST_LATE = "host_late"
    SYNCHRONISING = "synchronising"
    ALLOCATION = "allocation"
    START_END = "start_end"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """All idle gaps of all devices inside the span of the GPUs; one entry per gap."""

    device: I64
    start_ns: I64
    end_ns: I64
    next_work: I64  # row of the GPU work that ends the gap; -1 at the end of a device's span
    host_late_ns: I64
    synchronising_ns: I64
    allocation_ns: I64
    start_end_ns: I64
    unknown_ns: I64
    blocking: I64  # row of the blocking call that the synchronising part is charged to, -1 none

    def __len__(self) -> int:
        return len(self.start_ns)

    def total_ns(self, cause: Cause) -> int:
        """The idle time charged to one cause."""
        column: I64 = getattr(self, f"{cause.value}_ns")
        return int(column.sum())


def idle_gaps(trace: Trace, work: GpuWork, devices: tuple[DeviceTime, ...], calls: BlockingCalls) -> Gaps:
    """Every gap with its cause."""
    if not devices:
        return _empty()
    first, last = int(work.start_ns.min()), int(work.end_ns.max())
    parts = []
    for device in devices:
        found = gaps(device.busy, first, last)
        rows = np.flatnonzero(work.device == device.device)
        rows = rows[np.argsort(work.start_ns[rows], kind="stable")]
        position = np.searchsorted(work.start_ns[rows], found.end_ns)
        following = np.where(position < len(rows), rows[np.minimum(position, len(rows) - 1)], NONE)
        parts.append((np.full(len(found), device.device, np.int64), found.start_ns, found.end_ns, following))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return _charged(trace, work, calls, _Open(*columns))


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """Gaps that are not yet charged."""

    device: I64
    start_ns: I64
    end_ns: I64
    next_work: I64


def _charged(trace: Trace, work: GpuWork, calls: BlockingCalls, open_gaps: _Open) -> Gaps:
    length = open_gaps.end_ns - open_gaps.start_ns
    following = np.maximum(open_gaps.next_work, 0)
    linked = (open_gaps.next_work != NONE) & (work.launch[following] != NONE)
    # What had been launched before the recording began was queued: its gaps are the device's own.
    recorded = work.issue_ns[following] >= (
        trace.launches.start_ns.min() if len(trace.launches.start_ns) else 0
    )
    unknown = (open_gaps.next_work != NONE) & ~linked & recorded
    issue = np.where(linked, work.issue_ns[following], open_gaps.start_ns)
    # Launched after the gap began: all of it. Launched just before: what the launch itself took.
    underway = np.clip(issue + launch_latency_ns(work) - open_gaps.start_ns, 0, length)
    late_ns = np.where(linked, np.where(issue >= open_gaps.start_ns, length, underway), 0)
    late = late_ns > 0
    allocating = np.zeros(len(length), np.int64)
    waiting = np.zeros(len(length), np.int64)
    blocking = np.full(len(length), NONE, np.int64)
    code, pairs = thread_keys(work.process[following], work.thread[following])
    allocations = allocating_calls(trace)
    for index, (process, thread) in enumerate(pairs):
        rows = np.flatnonzero((code == index) & late)
        if not len(rows):
            continue
        start_ns = open_gaps.start_ns[rows]
        issued = np.clip(issue[rows], start_ns, open_gaps.end_ns[rows])
        allocating[rows] = covered_ns(allocation_time(trace, allocations, process, thread), start_ns, issued)
        mine = np.flatnonzero((calls.process == process) & (calls.thread == thread))
        waiting[rows], blocking[rows] = _waited(calls, mine, start_ns, issued)
    waiting = np.minimum(waiting, late_ns - allocating)
    return Gaps(
        device=open_gaps.device,
        start_ns=open_gaps.start_ns,
        end_ns=open_gaps.end_ns,
        next_work=open_gaps.next_work,
        host_late_ns=late_ns - allocating - waiting,
        synchronising_ns=waiting,
        allocation_ns=allocating,
        start_end_ns=np.where(unknown, 0, length - late_ns),
        unknown_ns=np.where(unknown, length, 0),
        blocking=np.where(waiting > 0, blocking, NONE),
    )


def _waited(calls: BlockingCalls, mine: I64, start_ns: I64, issued_ns: I64) -> tuple[I64, I64]:
    """Idle time that blocking calls of one thread explain in each gap, and the call that explains most.

    The call that is open as the gap begins, or the first inside it, is the one that is named.
    """
    if not len(mine):
        return np.zeros(len(start_ns), np.int64), np.full(len(start_ns), NONE, np.int64)
    begins, ends = calls.start_ns[mine], calls.end_ns[mine]
    inside = covered_ns(union(begins, ends), start_ns, issued_ns)
    at_start = np.searchsorted(begins, start_ns, side="right") - 1
    is_open = (at_start >= 0) & (ends[np.maximum(at_start, 0)] > start_ns)
    blocked_before = np.where(is_open, start_ns - begins[np.maximum(at_start, 0)], 0)
    following = np.minimum(at_start + 1, len(mine) - 1)
    begins_inside = (at_start + 1 < len(mine)) & (begins[following] < issued_ns)
    named = np.where(is_open, at_start, np.where(begins_inside, following, NONE))
    charged = np.where(named != NONE, np.minimum(inside + blocked_before, issued_ns - start_ns), 0)
    return charged, np.where(named != NONE, mine[np.maximum(named, 0)], NONE)


def launch_latency_ns(work: GpuWork) -> int:
    """From the launch call to the start of the work where the device was waiting for it: 0 if unknown."""
    known = work.launch != NONE
    latency = work.start_ns[known] - work.issue_ns[known]
    latency = latency[latency >= 0]
    if not len(latency):
        return 0
    return min(int(np.percentile(latency, LAUNCH_PERCENTILE)), LAUNCH_AT_MOST_NS)


def _empty() -> Gaps:
    none = np.empty(0, np.int64)
    return Gaps(
        device=none, start_ns=none, end_ns=none, next_work=none, host_late_ns=none, synchronising_ns=none,
        allocation_ns=none, start_end_ns=none, unknown_ns=none, blocking=none,
    )  # fmt: skip


def late_gaps(found: Gaps) -> NDArray[np.bool_]:
    """Gaps in which the device waited for the host."""
    result: NDArray[np.bool_] = found.host_late_ns + found.synchronising_ns + found.allocation_ns > 0
    return result
