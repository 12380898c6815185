"""The last steps that all readers share: from grown tables to a ``Trace``."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepscope.model.trace import Copies, Kernels, Launches, Syncs
from stepscope.record.call_names import sync_kind
from stepscope.record.reader_warnings import WarningLog

I64 = NDArray[np.int64]
_RANK_IN_NAME = re.compile(r"rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)


def rank_in_name(path: Path) -> int | None:
    """The rank in a file name such as ``x-global-rank3.trace.json.gz``."""
    found = _RANK_IN_NAME.findall(path.name)
    return int(found[-1]) if found else None


def waiting_calls(launches: Launches, names: tuple[str, ...]) -> Syncs:
    """The launches that wait for the device; they stay among the launches too."""
    kinds = {index: sync_kind(names[index]) for index in np.unique(launches.name).tolist()}
    kind = np.array([-1, *kinds.values()], np.int32)
    place = np.searchsorted(np.array(list(kinds), np.int32), launches.name) + 1
    row_kind = kind[place] if kinds else np.empty(0, np.int32)
    rows = row_kind >= 0
    return Syncs(
        name=launches.name[rows],
        process=launches.process[rows],
        thread=launches.thread[rows],
        start_ns=launches.start_ns[rows],
        duration_ns=launches.duration_ns[rows],
        kind=row_kind[rows],
    )


def overlaps_on_streams(kernels: Kernels, copies: Copies) -> int:
    """How many slices start before an earlier one on the same process, device and stream has ended."""
    process, device, stream, start, duration = (
        np.concatenate((getattr(kernels, name), getattr(copies, name)))
        for name in ("process", "device", "stream", "start_ns", "duration_ns")
    )
    if len(start) < 2:
        return 0
    order = np.lexsort((start, stream, device, process))
    process, device, stream, start, end = (
        column[order] for column in (process, device, stream, start, start + duration)
    )
    fresh = np.concatenate(
        ([True], (np.diff(process) != 0) | (np.diff(device) != 0) | (np.diff(stream) != 0))
    )
    reach = _running_end(end, np.cumsum(fresh) - 1)
    return int((~fresh[1:] & (start[1:] < reach[:-1])).sum())


def note_overlaps(kernels: Kernels, copies: Copies, log: WarningLog) -> None:
    """Note overlapping slices: legal since programmatic dependent launch, but their sum is not busy time."""
    text = "slices overlap on one stream; busy times are unions, not sums"
    log.add("overlapping_slices", text, overlaps_on_streams(kernels, copies))


def _running_end(end: I64, group: I64) -> I64:
    """The largest end so far within each group; groups are contiguous."""
    ranked = np.argsort(end, kind="stable")
    rank = np.empty(len(end), np.int64)
    rank[ranked] = np.arange(len(end))
    reached = np.maximum.accumulate(rank + group * len(end)) - group * len(end)
    return end[ranked[reached]]
