"""What runtime calls and copies are, told from the names CUDA, HIP and XPU recorders give them."""

from __future__ import annotations

import re

from stepscope.model.trace import COPY_KINDS, SYNC_KINDS
from stepscope.model.vocabulary import CopyKind, SyncKind

_SYNC_RULES: tuple[tuple[re.Pattern[str], SyncKind], ...] = (
    (re.compile(r"(StreamWaitEvent|EnqueueEventsWait)"), SyncKind.STREAM_WAIT),
    (re.compile(r"(Device|Ctx|Context)Synchronize"), SyncKind.DEVICE),
    (re.compile(r"(StreamSynchronize|QueueSynchronize|QueueFinish)"), SyncKind.STREAM),
    (re.compile(r"(Event(Host)?Synchronize|EventWait)"), SyncKind.EVENT),
    # A copy without Async returns when it is done.
    (re.compile(r"^(cuda|hip|cu)Memcpy(?!.*(Async|Peer))"), SyncKind.OTHER),
    (re.compile(r"Synchronize"), SyncKind.OTHER),
)

_COPY_RULES: tuple[tuple[re.Pattern[str], CopyKind], ...] = (
    (re.compile(r"HtoD|HostToDevice|M2D", re.IGNORECASE), CopyKind.HOST_TO_DEVICE),
    (re.compile(r"DtoH|DeviceToHost|D2M", re.IGNORECASE), CopyKind.DEVICE_TO_HOST),
    (re.compile(r"PtoP|PeerToPeer", re.IGNORECASE), CopyKind.PEER_TO_PEER),
    (re.compile(r"DtoD|DeviceToDevice|D2D", re.IGNORECASE), CopyKind.DEVICE_TO_DEVICE),
    (re.compile(r"HtoH|HostToHost", re.IGNORECASE), CopyKind.HOST_TO_HOST),
)


def sync_kind(name: str) -> int:
    """Index into ``SYNC_KINDS`` of what a call waits for, -1 if it does not wait."""
    for pattern, kind in _SYNC_RULES:
        if pattern.search(name):
            return SYNC_KINDS.index(kind.value)
    return -1


def copy_kind(name: str) -> int:
    """Index into ``COPY_KINDS`` of a copy's direction, from names like ``Memcpy HtoD (Pinned -> Device)``."""
    for pattern, kind in _COPY_RULES:
        if pattern.search(name):
            return COPY_KINDS.index(kind.value)
    return COPY_KINDS.index(CopyKind.OTHER.value)


def host_memory_pinned(name: str) -> int:
    """1 if a copy's host side is pinned, 0 if pageable, -1 if its name does not tell."""
    if "Pageable" in name:
        return 0
    return 1 if "Pinned" in name else -1


CALL_VERSION = re.compile(r"(?:_ptsz|_ptds)?_v\d{4,5}$")
"""Nsight Systems names the CUDA version that brought a call (``cudaLaunchKernel_v7000``), Kineto does not."""

_NSIGHT_DIRECTIONS = {
    1: CopyKind.HOST_TO_DEVICE,
    2: CopyKind.DEVICE_TO_HOST,
    3: CopyKind.HOST_TO_DEVICE,  # host to array
    4: CopyKind.DEVICE_TO_HOST,  # array to host
    5: CopyKind.DEVICE_TO_DEVICE,  # between arrays
    6: CopyKind.DEVICE_TO_DEVICE,
    7: CopyKind.DEVICE_TO_DEVICE,
    8: CopyKind.DEVICE_TO_DEVICE,
    9: CopyKind.HOST_TO_HOST,
    10: CopyKind.PEER_TO_PEER,
    11: CopyKind.HOST_TO_DEVICE,  # unified memory
    12: CopyKind.DEVICE_TO_HOST,
    13: CopyKind.DEVICE_TO_DEVICE,
}
_NSIGHT_MEMORY = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device",
    6: "Managed",
}


def nsight_copy_kind(code: int) -> int:
    """Index into ``COPY_KINDS`` of ENUM_CUDA_MEMCPY_OPER."""
    return COPY_KINDS.index(_NSIGHT_DIRECTIONS.get(code, CopyKind.OTHER).value)


def copy_name(code: int, source: int, destination: int) -> str:
    """A copy's name as Kineto spells it, from ENUM_CUDA_MEMCPY_OPER and two of ENUM_CUDA_MEM_KIND."""
    direction = _NSIGHT_DIRECTIONS.get(code, CopyKind.OTHER).value
    if source not in _NSIGHT_MEMORY or destination not in _NSIGHT_MEMORY:
        return f"Memcpy {direction}"
    return f"Memcpy {direction} ({_NSIGHT_MEMORY[source]} -> {_NSIGHT_MEMORY[destination]})"


def fill_name(kind: int) -> str:
    """A fill's name as Kineto spells it, from ENUM_CUDA_MEM_KIND."""
    return f"Memset ({_NSIGHT_MEMORY.get(kind, 'Unknown')})"
