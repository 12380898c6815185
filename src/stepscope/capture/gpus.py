"""Which NVIDIA GPUs a machine has, told without torch."""

from __future__ import annotations

import shutil
import subprocess

_TIMEOUT_S = 20


def nvidia_gpus() -> tuple[str, ...]:
    """Names of the GPUs that the driver shows; empty where there is none, or no driver."""
    return _by_nvml() or _by_smi()


def _by_nvml() -> tuple[str, ...]:
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        return tuple(
            str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)
        )
    except pynvml.NVMLError:
        return ()


def _by_smi() -> tuple[str, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    try:
        done = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return (
        tuple(line.strip() for line in done.stdout.splitlines() if line.strip())
        if not done.returncode
        else ()
    )
