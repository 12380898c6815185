"""What a device could do at most: dense arithmetic rates and memory bandwidth, from its vendor's datasheet.

The figures with their sources are in ``data/devices.json``. Datasheets like to print rates with 2:4
structured sparsity, twice the dense ones; only dense figures are kept. A device that is not in the file, a
slice of one (MIG, vGPU), a laptop's namesake: no peak rather than a wrong one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

__all__ = ["DTYPES", "DevicePeaks", "Peak", "device_peaks", "known_devices", "peak_of"]

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
"""The dtypes a rate may be known for; fp32 is without tensor cores, tf32 with."""

_TERA = 1e12
_GIGA = 1e9


class DevicePeaks(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the data file: one device as software sees it (a die of a two-die card)."""

    device: str
    pattern: str
    memory_gb_per_s: float
    dense_tflop_per_s: dict[str, float]
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The dense peak of one device for one dtype."""

    device: str
    dtype: str
    flop_per_s: float
    memory_bytes_per_s: float
    source: str


class _DeviceFile(msgspec.Struct, frozen=True):
    about: str
    devices: tuple[DevicePeaks, ...]


@cache
def known_devices() -> tuple[DevicePeaks, ...]:
    """Every device of the data file."""
    text = resources.files("stepscope.analyse").joinpath("data/devices.json").read_bytes()
    return msgspec.json.decode(text, type=_DeviceFile).devices


def device_peaks(device_name: str) -> DevicePeaks | None:
    """The entry of the device that calls itself ``device_name``, or None."""
    name = device_name.strip()
    return next((one for one in known_devices() if re.fullmatch(one.pattern, name, re.IGNORECASE)), None)


def peak_of(device_name: str, dtype: str) -> Peak | None:
    """Peak of the device for one of ``DTYPES``; None where the device or its rate is not known."""
    entry = device_peaks(device_name)
    rate = None if entry is None else entry.dense_tflop_per_s.get(dtype)
    if entry is None or rate is None:
        return None
    return Peak(
        device=entry.device,
        dtype=dtype,
        flop_per_s=rate * _TERA,
        memory_bytes_per_s=entry.memory_gb_per_s * _GIGA,
        source=entry.source,
    )
