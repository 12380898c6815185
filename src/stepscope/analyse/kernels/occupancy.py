"""How many warps of a kernel fit on a multiprocessor at once, and what stops more from fitting.

The arithmetic and the allocation units are those of NVIDIA's occupancy calculator (``cuda_occupancy.h`` of
the CUDA toolkit 13.0) and of the table "Technical Specifications per Compute Capability" of its programming
guide: registers are given to warps in units of 256 from four partitions, shared memory to blocks in units of
128 bytes (256 before Ampere), and from Ampere on the driver keeps 1 KiB for each block. AMD and Intel divide
their units otherwise: no figure for them.

Prefer this to what a Kineto trace records: Kineto writes 0 for kernels with more than 48 KiB of shared memory
(the large GEMMs and attention), because it does not tell the calculator that they opted in to more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepscope.model.trace import Device

__all__ = [
    "MultiprocessorLimits",
    "Occupancy",
    "launched_occupancy",
    "limits_of",
    "occupancy_of",
    "occupancy_on",
]

_WARP = 32
_PARTITIONS = 4
_REGISTER_UNIT = 256  # registers, for a warp
_REGISTERS = 65_536
_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiprocessorLimits:
    """What one multiprocessor has to give."""

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    shared_unit_bytes: int
    reserved_shared_bytes: int  # kept by the driver for each block


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident warps over the most there can be, and why not more."""

    theoretical: float  # 0 to 1
    blocks_per_multiprocessor: int
    limited_by: str  # warps | registers | shared_memory | blocks


# Compute capability: resident threads, resident blocks, KiB of shared memory, all of one multiprocessor.
_CAPABILITIES = {
    "7.0": (2048, 32, 96),
    "7.2": (2048, 32, 96),
    "7.5": (1024, 16, 64),
    "8.0": (2048, 32, 164),
    "8.6": (1536, 16, 100),
    "8.7": (1536, 16, 164),
    "8.9": (1536, 24, 100),
    "9.0": (2048, 32, 228),
    "10.0": (2048, 32, 228),
    "10.3": (2048, 32, 228),
    "11.0": (1536, 24, 228),
    "12.0": (1536, 24, 100),
    "12.1": (1536, 24, 100),
}

_NOT_NVIDIA = re.compile(r"\b(?:AMD|ATI|Radeon|Instinct|gfx\d+\w*|Intel)\b", re.IGNORECASE)


def limits_of(device: Device) -> MultiprocessorLimits | None:
    """Limits of ``device``'s multiprocessors; None where its compute capability is not one of NVIDIA's known.

    What the trace says of the device goes before the table.
    """
    known = _CAPABILITIES.get(device.compute_capability or "")
    if known is None or _NOT_NVIDIA.search(device.name):  # gfx90a calls itself 9.0 too
        return None
    threads, blocks, shared_kib = known
    ampere_or_later = int((device.compute_capability or "0").partition(".")[0]) >= 8
    return MultiprocessorLimits(
        warps=(device.threads_per_multiprocessor or threads) // _WARP,
        blocks=blocks,
        registers=device.registers_per_multiprocessor or _REGISTERS,
        shared_bytes=device.shared_bytes_per_multiprocessor or shared_kib * _KIB,
        shared_unit_bytes=128 if ampere_or_later else 256,
        reserved_shared_bytes=_KIB if ampere_or_later else 0,
    )


def occupancy_of(
    *, threads: int, registers: int, shared_bytes: int, limits: MultiprocessorLimits
) -> Occupancy | None:
    """Occupancy of a kernel with ``threads`` a block, ``registers`` a thread and ``shared_bytes`` a block.

    ``shared_bytes`` is static and dynamic together. Assumes that the driver grants as much shared memory as
    there is (its default). None for values that no launch can have.
    """
    if threads <= 0 or registers < 0 or shared_bytes < 0 or limits.warps <= 0:
        return None
    warps = _ceiling(threads, _WARP)
    fits = {
        "warps": limits.warps // warps,
        "registers": _blocks_by_registers(warps, registers, limits),
        "shared_memory": _blocks_by_shared_memory(shared_bytes, limits),
        "blocks": limits.blocks,
    }
    limited_by = min(fits, key=lambda limit: fits[limit])
    blocks = fits[limited_by]
    return Occupancy(
        theoretical=blocks * warps / limits.warps, blocks_per_multiprocessor=blocks, limited_by=limited_by
    )


def launched_occupancy(occupancy: Occupancy, *, grid_blocks: int, multiprocessors: int) -> float:
    """What a grid of ``grid_blocks``, spread evenly, can reach of the device's warps: 0 to 1.

    A grid smaller than the device cannot reach the theoretical figure. This is Kineto's "est. achieved
    occupancy".
    """
    most = occupancy.blocks_per_multiprocessor * multiprocessors
    return occupancy.theoretical * min(grid_blocks / most, 1) if most > 0 else 0.0


def occupancy_on(
    device: Device, *, grid_blocks: int, threads: int, registers: int, shared_bytes: int
) -> float | None:
    """``launched_occupancy`` of a kernel on ``device``; None where either is not known well enough."""
    limits = limits_of(device)
    if limits is None or not device.multiprocessors:
        return None
    found = occupancy_of(threads=threads, registers=registers, shared_bytes=shared_bytes, limits=limits)
    if found is None:
        return None
    return launched_occupancy(found, grid_blocks=grid_blocks, multiprocessors=device.multiprocessors)


def _blocks_by_registers(warps: int, registers: int, limits: MultiprocessorLimits) -> int:
    if registers == 0:
        return limits.blocks
    for_a_warp = _ceiling(registers * _WARP, _REGISTER_UNIT) * _REGISTER_UNIT
    return limits.registers // _PARTITIONS // for_a_warp * _PARTITIONS // warps


def _blocks_by_shared_memory(shared_bytes: int, limits: MultiprocessorLimits) -> int:
    wanted = shared_bytes + limits.reserved_shared_bytes
    granted = _ceiling(wanted, limits.shared_unit_bytes) * limits.shared_unit_bytes
    return limits.blocks if granted == 0 else limits.shared_bytes // granted


def _ceiling(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
