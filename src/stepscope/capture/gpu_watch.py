"""Watches a GPU's clock, temperature, power and throttling by NVML while others work on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

INTERVAL_S = 0.1

# nvml.h: nvmlClocksEventReason*. Idle and application clocks say nothing of throttling.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One reading. What NVML would not tell is None."""

    at_ns: int  # time.perf_counter_ns
    sm_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled_by: tuple[str, ...] = ()


Sampler = Callable[[], GpuSample]


class GpuWatch:
    """Takes a sample every ``INTERVAL_S`` on a thread of its own, between ``start`` and ``stop``."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._samples: list[GpuSample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> GpuWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, start_ns: int, end_ns: int) -> tuple[GpuSample, ...]:
        """The samples taken in an interval of ``time.perf_counter_ns``."""
        return tuple(sample for sample in tuple(self._samples) if start_ns <= sample.at_ns <= end_ns)

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._samples.append(self._sampler())


def nvml_sampler(gpu_uuid: str) -> Sampler | None:
    """A sampler of the GPU with this UUID; None where there is no NVML or no such GPU."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu_uuid)
    except nvml.NVMLError:
        return None
    return lambda: _sample(nvml, handle)


def current_gpu_uuid(device: str) -> str | None:
    """NVML's name of the CUDA GPU that torch calls ``device``; None for anything else."""
    import torch

    target = torch.device(device)
    if target.type != "cuda" or torch.version.hip is not None:
        return None
    return f"GPU-{torch.cuda.get_device_properties(target).uuid}"


def _sample(nvml: Any, handle: Any) -> GpuSample:
    readings: dict[str, Any] = {}
    with suppress(nvml.NVMLError):
        readings["sm_mhz"] = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    with suppress(nvml.NVMLError):
        readings["temperature_c"] = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    with suppress(nvml.NVMLError):
        readings["power_w"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    with suppress(nvml.NVMLError):
        mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        readings["throttled_by"] = tuple(name for bit, name in _REASONS.items() if mask & bit)
    return GpuSample(at_ns=time.perf_counter_ns(), **readings)


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
