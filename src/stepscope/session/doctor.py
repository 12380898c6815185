"""``doctor``: what this machine can do, tried rather than looked up where that is possible."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from stepscope.analyse.nsys_diagnosis import NVTX_REMEDY
from stepscope.capture.machine import (
    device_checks,
    driver_cuda,
    newest_cupti,
    nvtx_version,
    pipelines_check,
    python_check,
    sampling_check,
    torch_check,
)
from stepscope.capture.nsight.tool import INSTALL_REMEDY, find_nsys
from stepscope.model.health import HEALTH_SCHEMA_VERSION, Check, Health, State
from stepscope.model.nsight import NsysTool
from stepscope.session.nsight.probe import probe_ranges
from stepscope.session.viewing.server import LOOPBACK
from stepscope.session.viewing.view import PORT, forwarding, offline_viewer

Cuda = tuple[int, int]
LITTLE_SPACE_GB = 5.0
"""A trace of some steps with stacks is up to a gigabyte before it is packed."""


def examine(told: Callable[[Check], None] = lambda _: None) -> Health:
    """Make every check; ``told`` hears of each as soon as it is made."""
    checks = []
    for check in _checks():
        told(check)
        checks.append(check)
    return Health(schema_version=HEALTH_SCHEMA_VERSION, checks=tuple(checks))


def _checks() -> Iterator[Check]:
    yield python_check()
    yield torch_check()
    yield pipelines_check()
    yield from device_checks()
    tool = find_nsys()
    known = None if tool is None or tool.path is None else newest_cupti(tool.path)
    yield nsys_check(tool, known, driver_cuda())
    yield nvtx_check(tool)
    yield sampling_check()
    yield space_check(Path.cwd())
    yield viewer_check()


def nsys_check(tool: NsysTool | None, known: Cuda | None, driver: Cuda | None) -> Check:
    """Nsight Systems: there, whole, and as new as the driver. ``known``: the newest CUDA it was made for."""
    title, name = "Nsight Systems", "nsys"
    if tool is None or tool.path is None:
        return Check(
            id=name, title=title, state=State.MISSING, text="not installed: stepscope nsys needs it",
            remedy=INSTALL_REMEDY,
        )  # fmt: skip
    text = f"{tool.version} at {tool.path}"
    if not tool.importer:
        folder = Path(tool.path).resolve().parent.parent
        return Check(
            id=name, title=title, state=State.LIMITED,
            text=f"{text}; without its importer it leaves a .qdstrm and no report",
            remedy=f"On Debian: ln -s /usr/lib/nsight-systems/host-linux-x64 {folder}/",
        )  # fmt: skip
    if known is not None and driver is not None and known < driver:
        return Check(
            id=name, title=title, state=State.LIMITED,
            text=f"{text}; made for CUDA up to {_dotted(known)}, the driver is for {_dotted(driver)}",
            remedy="If kernels are missing from its reports, install a newer Nsight Systems.",
        )  # fmt: skip
    return Check(id=name, title=title, state=State.OK, text=text)


def _dotted(version: Cuda) -> str:
    return ".".join(map(str, version))


def nvtx_check(tool: NsysTool | None) -> Check:
    """Whether ranges of this nvtx package arrive in a report of this nsys: tried."""
    version = nvtx_version()
    if version is None:
        return Check(
            id="nvtx", title="NVTX ranges", state=State.MISSING, text="the nvtx package is not installed",
            remedy='pip install "nvtx<0.2.12"',
        )  # fmt: skip
    if tool is None:
        text = f"nvtx {version}; without nsys nothing records them"
        return Check(id="nvtx", title="NVTX ranges", state=State.UNKNOWN, text=text)
    probe = probe_ranges(tool)
    if probe.recorded:
        text = f"nvtx {version}; a range was recorded by nsys {tool.version}"
        return Check(id="nvtx", title="NVTX ranges", state=State.OK, text=text)
    if probe.recorded is None:
        text = f"nvtx {version}; it could not be tried: {probe.reason}"
        return Check(id="nvtx", title="NVTX ranges", state=State.UNKNOWN, text=text)
    return Check(
        id="nvtx", title="NVTX ranges", state=State.LIMITED,
        text=f"nvtx {version} is newer than nsys {tool.version} understands: it records no range",
        remedy=NVTX_REMEDY,
    )  # fmt: skip


def space_check(here: Path) -> Check:
    """Free space where traces are written and where nsys keeps its raw capture."""
    places = {f"{here}": here, f"{tempfile.gettempdir()}": Path(tempfile.gettempdir())}
    free = {name: shutil.disk_usage(path).free / 1e9 for name, path in places.items()}
    text = ", ".join(f"{size:,.0f} GB free in {name}" for name, size in free.items())
    if min(free.values()) < LITTLE_SPACE_GB:
        return Check(
            id="space", title="disk", state=State.LIMITED, text=text,
            remedy="Free some space, trace fewer steps, or set TMPDIR and --profile-dir.",
        )  # fmt: skip
    return Check(id="space", title="disk", state=State.OK, text=text)


def viewer_check() -> Check:
    """How a trace gets onto a screen here."""
    offline = offline_viewer() is not None
    port = "" if _is_free(PORT) else f"; port {PORT} is taken: give --port"
    tunnel = forwarding(PORT)
    where = "ui.perfetto.dev" + (", or offline" if offline else "")
    browser = "in the browser" if tunnel is None else f"in a browser elsewhere after {tunnel}"
    if offline:
        return Check(id="viewer", title="viewer", state=State.OK, text=f"{where}, {browser}{port}")
    return Check(
        id="viewer", title="viewer", state=State.LIMITED, text=f"{where}, {browser}{port}",
        remedy='For view --offline: pip install "stepscope[view]".',
    )  # fmt: skip


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) != 0
