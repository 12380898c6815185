"""What host threads were blocked in: synchronising calls and allocations, as intervals per thread."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from stepscope.analyse.intervals import EMPTY, Intervals, union
from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.nesting import NONE
from stepscope.model.trace import I32, I64, SYNC_KINDS, Trace
from stepscope.model.vocabulary import SyncKind

_ALLOCATION = re.compile(
    r"^(?:cuda|hip|cu)(?:Malloc\w*|Free\w*|HostAlloc|HostRegister|MemAlloc\w*|MemFree\w*|MemCreate|MemMap|"
    r"MemUnmap|MemRelease|MemAddressReserve|HostFree)$"
)

PAGEABLE_BLOCKS_FROM_NS = 20_000
"""A copy call from or to pageable memory that takes longer than this waited for the stream."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockingCalls:
    """Calls in which a thread waited for the device, sorted by start."""

    name: I32
    process: I32
    thread: I64
    start_ns: I64
    end_ns: I64

    def __len__(self) -> int:
        return len(self.start_ns)


def blocking_calls(trace: Trace, work: GpuWork) -> BlockingCalls:
    """Synchronising calls, and copies of pageable memory, which wait for the stream before them."""
    launches, syncs = trace.launches, trace.syncs
    waiting = np.flatnonzero(syncs.kind != SYNC_KINDS.index(SyncKind.STREAM_WAIT.value))
    copies = np.flatnonzero(work.is_copy & (work.launch != NONE))
    pageable = copies[trace.copies.pinned[copies - work.kernel_count] == 0]
    calls = np.unique(work.launch[pageable])
    slow = calls[launches.duration_ns[calls] > PAGEABLE_BLOCKS_FROM_NS]
    start_ns = np.concatenate((syncs.start_ns[waiting], launches.start_ns[slow]))
    order = np.argsort(start_ns, kind="stable")
    end_ns = start_ns + np.concatenate((syncs.duration_ns[waiting], launches.duration_ns[slow]))
    return BlockingCalls(
        name=np.concatenate((syncs.name[waiting], launches.name[slow]))[order],
        process=np.concatenate((syncs.process[waiting], launches.process[slow]))[order],
        thread=np.concatenate((syncs.thread[waiting], launches.thread[slow]))[order],
        start_ns=start_ns[order],
        end_ns=end_ns[order],
    )


def allocating_calls(trace: Trace) -> I64:
    """The rows of the launches that allocate or free device or pinned memory."""
    return np.flatnonzero(_named(trace, trace.launches.name, _ALLOCATION))


def allocation_time(trace: Trace, calls: I64, process: int, thread: int) -> Intervals:
    """When a thread was inside the given calls (rows of the launches)."""
    launches = trace.launches
    rows = calls[(launches.process[calls] == process) & (launches.thread[calls] == thread)]
    if not len(rows):
        return EMPTY
    return union(launches.start_ns[rows], launches.start_ns[rows] + launches.duration_ns[rows])


def _named(trace: Trace, names: I32, pattern: re.Pattern[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows whose name the pattern finds; each distinct name is looked at once."""
    accepted = np.zeros(len(trace.names) + 1, np.bool_)
    for name in np.flatnonzero(np.bincount(names, minlength=1)):
        accepted[name] = bool(pattern.search(trace.names[int(name)]))
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = accepted[names]
    return result
