"""Looks at this machine for ``stepscope doctor``: packages, devices, permissions. Changes nothing."""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.capture.devices import clock_for
from stepscope.capture.gpus import nvidia_gpus
from stepscope.model.health import Check, State

RUN_REMEDY = 'pip install "stepscope[run]"; it leaves a torch that is there alone'
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_NVIDIA_PARAMETERS = Path("/proc/driver/nvidia/params")
_CUPTI = re.compile(r"libcupti\.so\.(\d+)\.(\d+)")
SAMPLING_ALLOWED = 2
"""perf_event_paranoid up to which nsys samples the CPU for an ordinary user (nsys status -e says so)."""


def python_check() -> Check:
    """Python and stepscope themselves."""
    text = f"stepscope {__version__}, Python {platform.python_version()}, {platform.platform()}"
    return Check(id="python", title="Python", state=State.OK, text=text)


def torch_check() -> Check:
    """The torch that would run a pipeline, and what it was built for."""
    version = _version("torch")
    if version is None:
        return Check(
            id="torch", title="torch", state=State.MISSING,
            text="not installed: report, compare, view and slice work without it", remedy=RUN_REMEDY,
        )  # fmt: skip
    import torch

    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else ""
    built = built or (f"ROCm {torch.version.hip}" if torch.version.hip else "the CPU only")
    gpus = nvidia_gpus()
    if gpus and not torch.cuda.is_available():
        return Check(
            id="torch", title="torch", state=State.LIMITED,
            text=f"{torch.__version__}, built for {built}; it cannot use the {gpus[0]} that is here",
            remedy="Install the torch build for the CUDA version that nvidia-smi shows.",
        )  # fmt: skip
    return Check(id="torch", title="torch", state=State.OK, text=f"{torch.__version__}, built for {built}")


def pipelines_check() -> Check:
    """Diffusers and what it needs."""
    found = {name: _version(name) for name in ("diffusers", "transformers", "accelerate")}
    missing = [name for name, version in found.items() if version is None]
    text = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if missing:
        return Check(
            id="pipelines", title="pipelines", state=State.MISSING,
            text=f"not installed: {', '.join(missing)}", remedy=RUN_REMEDY,
        )  # fmt: skip
    return Check(id="pipelines", title="pipelines", state=State.OK, text=text)


def device_checks() -> tuple[Check, ...]:
    """Each device, and whether its events tell the truth (two events around a known wait)."""
    if _version("torch") is None:
        return ()
    import torch

    kinds = [kind for kind in ("cuda", "xpu", "mps") if _is_there(torch, kind)]
    if not kinds:
        text = "none: pipelines run on the CPU, where the host's clock is the right one"
        return (Check(id="device", title="device", state=State.OK, text=text),)
    return tuple(
        _device_check(torch, kind, index)
        for kind in kinds
        for index in range(getattr(torch, kind).device_count())
    )


def _is_there(torch: Any, kind: str) -> bool:
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return module is not None and bool(module.is_available())


def _device_check(torch: Any, kind: str, index: int) -> Check:
    name = "" if kind == "mps" else f" {getattr(torch, kind).get_device_name(index)}"
    clock = clock_for(torch.device(kind, index)).description
    where = f"{kind}:{index}"
    if clock.trusted and clock.kind.value == "device_events":
        text = f"{where}{name}; events {clock.self_test}"
        return Check(id=f"device_{kind}_{index}", title="device", state=State.OK, text=text)
    return Check(
        id=f"device_{kind}_{index}", title="device", state=State.LIMITED,
        text=f"{where}{name}; {clock.self_test}", remedy="Times come from a synchronised clock instead.",
    )  # fmt: skip


def nvtx_version() -> str | None:
    """The installed nvtx package."""
    return _version("nvtx")


def sampling_check(read: Callable[[Path], str] | None = None) -> Check:
    """Whether nsys may sample the CPU and read GPU metrics; nothing of ours needs either."""
    read = read or _text
    level = read(_PARANOID).strip()
    admin_only = "RmProfilingAdminOnly: 1" in read(_NVIDIA_PARAMETERS)
    limits = []
    if level.lstrip("-").isdigit() and int(level) > SAMPLING_ALLOWED:
        limits.append(f"CPU samples: no (kernel.perf_event_paranoid is {level})")
    if admin_only:
        limits.append("GPU metrics: root only")
    if not limits:
        return Check(
            id="permissions",
            title="permissions",
            state=State.OK,
            text="nothing stands in the way of sampling",
        )
    return Check(
        id="permissions", title="permissions", state=State.LIMITED, text="; ".join(limits),
        remedy="Kernels, ranges and traces need neither. For samples: sudo sysctl "
        "kernel.perf_event_paranoid=2; in a container --cap-add=SYS_ADMIN.",
    )  # fmt: skip


def newest_cupti(nsys: str) -> tuple[int, int] | None:
    """The newest CUDA version whose CUPTI lies beside an nsys."""
    folder = Path(nsys).resolve().parent
    places = (folder, *folder.parent.glob("target-linux-*"))
    names = [name for place in places for name in glob.glob(str(place / "libcupti.so.*"))]  # noqa: PTH207
    versions = [(int(found[1]), int(found[2])) for name in names if (found := _CUPTI.search(name))]
    return max(versions, default=None)


def driver_cuda() -> tuple[int, int] | None:
    """The CUDA version that the NVIDIA driver supports; None where there is no driver."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        version = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return None
    return version // 1000, version % 1000 // 10


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
