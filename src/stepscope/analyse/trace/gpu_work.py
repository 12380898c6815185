"""Kernels, copies and fills as one table, each linked to the host call that launched it.

The link is the correlation id, which is unique only within a process. Launches are never recognised by the
name of the call: names grow with every driver (cuLaunchKernelEx was missed by tools that list them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.trace.nesting import NONE
from stepscope.model.trace import I32, I64, Trace
from stepscope.model.vocabulary import KernelCategory

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuWork:
    """All work of the GPUs, kernels first (rows 0 to ``kernel_count``), then copies and fills."""

    kernel_count: int
    name: I32
    process: I32
    device: I32
    stream: I64
    start_ns: I64
    end_ns: I64
    launch: I64  # row of Trace.launches, -1 unknown
    thread: I64  # of the launch, -1 unknown
    issue_ns: I64  # start of the launch call; where it is unknown, the latest it can have been
    is_copy: Mask
    is_fill: Mask
    is_communication: Mask
    category: I32  # per row, index into CATEGORIES; -1 for copies and fills

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def is_kernel(self) -> Mask:
        """Which rows are kernels."""
        return np.arange(len(self)) < self.kernel_count

    @property
    def devices(self) -> list[int]:
        """Devices that did any work."""
        return [int(device) for device in np.unique(self.device)]


CATEGORIES = tuple(KernelCategory)
"""``GpuWork.category`` indexes this."""


def gpu_work(trace: Trace, category_of: Callable[[str], KernelCategory]) -> GpuWork:
    """Put kernels, copies and fills into one table and link each to its launch."""
    kernels, copies = trace.kernels, trace.copies
    kernel_count = len(kernels.start_ns)
    launch = np.concatenate(
        (
            launches_of(trace, kernels.process, kernels.correlation),
            launches_of(trace, copies.process, copies.correlation),
        )
    )
    start_ns = np.concatenate((kernels.start_ns, copies.start_ns))
    duration_ns = np.concatenate((kernels.duration_ns, copies.duration_ns))
    known = launch != NONE
    thread = np.full(len(launch), -1, np.int64)
    thread[known] = trace.launches.thread[launch[known]]
    device = np.concatenate((kernels.device, copies.device))
    stream = np.concatenate((kernels.stream, copies.stream))
    issue_ns = start_ns.copy()
    issue_ns[known] = trace.launches.start_ns[launch[known]]
    issue_ns = _latest_issue(issue_ns, known, _Queue(device, stream, start_ns), _recording_start_ns(trace))
    category = np.full(len(launch), -1, np.int32)
    category[:kernel_count] = _categories(trace, category_of)
    is_fill = np.concatenate((np.zeros(kernel_count, np.bool_), copies.kind < 0))
    is_copy = np.concatenate((np.zeros(kernel_count, np.bool_), copies.kind >= 0))
    return GpuWork(
        kernel_count=kernel_count,
        name=np.concatenate((kernels.name, copies.name)),
        process=np.concatenate((kernels.process, copies.process)),
        device=device,
        stream=stream,
        start_ns=start_ns,
        end_ns=start_ns + np.maximum(duration_ns, 0),
        launch=launch,
        thread=thread,
        issue_ns=issue_ns,
        is_copy=is_copy,
        is_fill=is_fill,
        is_communication=category == CATEGORIES.index(KernelCategory.COMMUNICATION),
        category=category,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Queue:
    """Where and in which order work ran."""

    device: I32
    stream: I64
    start_ns: I64


def _latest_issue(issue_ns: I64, known: Mask, queue: _Queue, recording_start_ns: int) -> I64:
    """Issue times, the unknown ones moved before the next known one of their stream: streams are queues.

    What ran before anything whose launch was recorded had been launched before the recording began.
    """
    if known.all() or not known.any():
        return issue_ns
    order = np.lexsort((queue.start_ns, queue.stream, queue.device))
    result: I64 = issue_ns.copy()
    edges = np.flatnonzero((np.diff(queue.stream[order]) != 0) | (np.diff(queue.device[order]) != 0)) + 1
    for rows in np.split(order, edges):
        unknown = ~known[rows]
        later: I64 = np.minimum.accumulate(issue_ns[rows][::-1])[::-1]
        latest = np.minimum(later - 1, queue.start_ns[rows])
        head = np.cumsum(known[rows]) == 0
        result[rows[unknown]] = np.where(head, np.minimum(latest, recording_start_ns - 1), latest)[unknown]
    return result


def _recording_start_ns(trace: Trace) -> int:
    """The first moment of the host that was recorded."""
    tables = (trace.launches, trace.operators, trace.annotations)
    starts = [int(table.start_ns.min()) for table in tables if len(table.start_ns)]
    return min(starts, default=0)


def launches_of(trace: Trace, process: I32, correlation: I64) -> I64:
    """The launch row with the same process and correlation, ``NONE`` where there is none."""
    launches = trace.launches
    found = np.full(len(correlation), NONE, np.int64)
    if not len(launches.correlation) or not len(correlation):
        return found
    # Two keys in one: correlations are far below 2^40, process indices are small.
    key = (launches.process.astype(np.int64) << 40) + launches.correlation
    order = np.argsort(key, kind="stable")
    wanted = (process.astype(np.int64) << 40) + correlation
    position = np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)
    row = order[position]
    matched = (key[row] == wanted) & (correlation >= 0)
    found[matched] = row[matched]
    return found


def _categories(trace: Trace, category_of: Callable[[str], KernelCategory]) -> I32:
    """The category of every kernel; the rules run once per distinct name."""
    names, inverse = np.unique(trace.kernels.name, return_inverse=True)
    codes = [CATEGORIES.index(category_of(trace.names[int(name)])) for name in names]
    result: I32 = np.array(codes, np.int32)[inverse] if len(names) else np.empty(0, np.int32)
    return result
