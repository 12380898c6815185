"""Where a run happens: versions, device, driver, clocks. Environment variables are never read into it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import sys
from contextlib import suppress
from typing import Any

from stepscope import __version__
from stepscope.model.run import Environment

PACKAGES = (
    "torch",
    "diffusers",
    "transformers",
    "accelerate",
    "peft",
    "triton",
    "flash-attn",
    "sageattention",
    "xformers",
    "bitsandbytes",
    "torchao",
    "cache-dit",
    "numpy",
)


def read_environment(device: Any = None) -> Environment:
    """The environment of a run on ``device`` (a ``torch.device`` or its name; the CPU where None)."""
    import torch

    target = torch.device(device or "cpu")
    kind = "rocm" if target.type == "cuda" and torch.version.hip else target.type
    module = getattr(torch, target.type, None)
    index = target.index or 0
    counted = module is not None and hasattr(module, "device_count")
    return Environment(
        stepscope=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        host=socket.gethostname(),
        packages=_versions(),
        device_kind=kind,
        device_name=_device_name(module, target.type, index),
        device_count=module.device_count() if counted and module is not None and target.type != "cpu" else 0,
        driver=_driver(target.type, index),
        runtime=torch.version.hip or torch.version.cuda,
        cpu_count=os.cpu_count() or 0,
        threads=torch.get_num_threads(),
        clocks=read_clocks(index) if target.type == "cuda" else {},
    )


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    torch: Any = sys.modules.get("torch")
    if torch is not None:  # the build counts: +cu130, +rocm
        found["torch"] = str(torch.__version__)
    return found


def _device_name(module: Any, kind: str, index: int) -> str:
    if kind in {"cuda", "xpu"}:
        return str(module.get_device_name(index))
    return _cpu_name()


def _cpu_name() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _driver(kind: str, index: int) -> str | None:
    if kind == "xpu":
        import torch

        return str(torch.xpu.get_device_properties(index).driver_version)
    if kind != "cuda":
        return None
    nvml = _nvml()
    return None if nvml is None else str(nvml.nvmlSystemGetDriverVersion())


def read_clocks(index: int) -> dict[str, int]:
    """MHz, degrees and watts by NVML; empty where it is not there or does not say.

    The device is found by its UUID: NVML's numbering knows nothing of visible devices.
    """
    import torch

    nvml = _nvml()
    if nvml is None:
        return {}
    readings: dict[str, int] = {}
    with suppress(nvml.NVMLError, AttributeError):
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(index).uuid}")
        readings["sm_mhz"] = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        readings["memory_mhz"] = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
        readings["sm_max_mhz"] = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
        readings["temperature_c"] = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        readings["power_w"] = nvml.nvmlDeviceGetPowerUsage(handle) // 1000
    return readings


def _nvml() -> Any:
    """The NVML module, initialised; None where it or a driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except (ImportError, OSError):
        return None
    except Exception as error:
        if type(error).__name__.startswith("NVMLError"):
            return None
        raise
    return pynvml
