"""Where the GPUs' time goes: unions of intervals per device, never sums of durations.

Every moment of a window is exactly one of: computing (kernels and fills), exposed communication (only
collectives run), exposed copying (only copies run), idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.intervals import EMPTY, Intervals, covered_ns, subtraction, union, union_of
from stepscope.analyse.trace.earlier_work import EarlierWork
from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.mark_ranges import HostSpan
from stepscope.model.trace import I64
from stepscope.model.vocabulary import BoundBy


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """One device's time, split."""

    device: int
    busy: Intervals
    compute: Intervals
    communication: Intervals
    exposed_communication: Intervals
    copy: Intervals
    exposed_copy: Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTime:
    """How one window of time was spent, summed over devices."""

    length_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int

    @property
    def bound_by(self) -> BoundBy:
        """What the window waits for most: the largest of its four parts. Ties go to the GPU.

        A part above half of the window decides by itself; below that, no other part is larger.
        """
        if self.length_ns <= 0:
            return BoundBy.UNKNOWN
        parts = {
            BoundBy.GPU: self.compute_ns,
            BoundBy.HOST: self.idle_ns,
            BoundBy.COPY: self.exposed_copy_ns,
            BoundBy.COMMUNICATION: self.exposed_communication_ns,
        }
        return max(parts, key=lambda part: parts[part])


def device_times(work: GpuWork) -> tuple[DeviceTime, ...]:
    """The split of every device that did any work."""
    return tuple(_device_time(work, device) for device in work.devices)


def _device_time(work: GpuWork, device: int) -> DeviceTime:
    here = work.device == device

    def covered(rows: NDArray[np.bool_]) -> Intervals:
        return union(work.start_ns[here & rows], work.end_ns[here & rows])

    communication, copy = covered(work.is_communication), covered(work.is_copy)
    compute = covered(~work.is_communication & ~work.is_copy)
    working = union_of(compute, communication)
    return DeviceTime(
        device=device,
        busy=union_of(working, copy),
        compute=compute,
        communication=communication,
        exposed_communication=subtraction(communication, compute) if len(communication) else EMPTY,
        copy=copy,
        exposed_copy=subtraction(copy, working) if len(copy) else EMPTY,
    )


def window_times(devices: Sequence[DeviceTime], bounds: Sequence[tuple[int, int]]) -> list[WindowTime]:
    """How each window ``[start_ns, end_ns)`` was spent on the given devices together.

    A call looks through all intervals once, however many windows there are.
    """
    starts, ends = np.array(bounds, np.int64).reshape(-1, 2).T

    def inside(parts: Sequence[Intervals]) -> list[int]:
        covered = sum((covered_ns(part, starts, ends) for part in parts), np.zeros(len(starts), np.int64))
        return [int(value) for value in covered]

    columns = zip(
        [max(end_ns - start_ns, 0) * len(devices) for start_ns, end_ns in bounds],
        inside([device.compute for device in devices]),
        inside([device.exposed_communication for device in devices]),
        inside([device.exposed_copy for device in devices]),
        inside([device.busy for device in devices]),
        strict=True,
    )
    return [
        WindowTime(
            length_ns=length_ns,
            compute_ns=compute_ns,
            exposed_communication_ns=communication_ns,
            exposed_copy_ns=copy_ns,
            idle_ns=length_ns - busy_ns,
        )
        for length_ns, compute_ns, communication_ns, copy_ns, busy_ns in columns
    ]


def exposed_copy_ns(work: GpuWork, devices: Sequence[DeviceTime]) -> I64:
    """Per row of the work, the part of a copy during which no other copy and no kernel ran; else 0."""
    exposed = np.zeros(len(work), np.int64)
    for device in devices:
        rows = np.flatnonzero(work.is_copy & (work.device == device.device))
        exposed[rows] = covered_ns(device.exposed_copy, work.start_ns[rows], work.end_ns[rows])
    return exposed


class DeviceClock:
    """Host moments on the devices' clock: when work launched before a moment was done.

    This is what a device event recorded at that moment in the busiest stream would read: the moment itself
    where the device had nothing left to do, else the end of what was queued. Work on other streams
    (prefetching, side communication) does not delay it. ``earlier`` is in no row of the work.
    """

    def __init__(self, work: GpuWork, earlier: Sequence[EarlierWork] = ()) -> None:
        self._queues: dict[int, tuple[I64, I64]] = {}
        for process in np.unique(work.process):
            rows = np.flatnonzero((work.process == process) & work.is_kernel)
            if not len(rows):
                rows = np.flatnonzero(work.process == process)
            main = _main_stream_rows(work, rows)
            queued = np.flatnonzero(
                (work.process == process) & np.isin(_stream_key(work), _stream_key(work)[main])
            )
            keys = set(_stream_key(work)[main].tolist())
            before = [one for one in earlier if (one.device << 48) + one.stream in keys]
            issue_ns = np.append(work.issue_ns[queued], [one.at_ns - 1 for one in before]).astype(np.int64)
            end_ns = np.append(work.end_ns[queued], [one.until_ns for one in before]).astype(np.int64)
            order = np.argsort(issue_ns, kind="stable")
            self._queues[int(process)] = (issue_ns[order], np.maximum.accumulate(end_ns[order]))

    def at(self, process: int, moments_ns: Sequence[int]) -> list[int]:
        """Each host moment on the device's clock."""
        if process not in self._queues:
            return list(moments_ns)
        issued, done = self._queues[process]
        moments = np.asarray(moments_ns, np.int64)
        before = np.searchsorted(issued, moments, side="left") - 1
        ends = np.where(before >= 0, done[np.maximum(before, 0)], moments)
        return [int(value) for value in np.maximum(moments, ends)]

    def window(self, span: HostSpan) -> tuple[int, int]:
        """A host interval on the device's clock."""
        start_ns, end_ns = self.at(span.process, (span.start_ns, span.end_ns))
        return start_ns, end_ns


def _stream_key(work: GpuWork) -> I64:
    return (work.device.astype(np.int64) << 48) + work.stream


def _main_stream_rows(work: GpuWork, rows: I64) -> I64:
    """Rows of the stream with most kernel time on each device."""
    keys, inverse = np.unique(_stream_key(work)[rows], return_inverse=True)
    busy = np.bincount(inverse, weights=work.end_ns[rows] - work.start_ns[rows])
    devices = keys >> 48
    best = [int(np.flatnonzero(devices == d)[np.argmax(busy[devices == d])]) for d in np.unique(devices)]
    chosen: I64 = rows[np.isin(inverse, best)]
    return chosen


def busy_ns_by(work: GpuWork, group: NDArray[np.int32], count: int) -> list[int]:
    """Busy time of the work of each group, unions per device summed; group -1 is left out."""
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(count + 1))
    totals = []
    for first, last in pairwise(bounds):
        rows = order[first:last]
        device = work.device[rows]
        totals.append(
            sum(
                union(work.start_ns[rows[device == d]], work.end_ns[rows[device == d]]).total_ns
                for d in np.unique(device)
            )
        )
    return totals
