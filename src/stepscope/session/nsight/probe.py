"""Tries whether this nsys records ranges of this Python's nvtx package: no table of versions is as sure."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepscope.capture.nsight.command import NsysRequest, build_line
from stepscope.model.errors import StepscopeError
from stepscope.model.nsight import NsysTool
from stepscope.record.nsight.keep import keep_export

_PROGRAM = """
import time, nvtx
time.sleep(0.5)
nvtx.push_range("probe", domain="stepscope")
nvtx.pop_range(domain="stepscope")
time.sleep(0.5)
"""
"""A process that lives for less than half a second leaves nothing."""
_TIMEOUT_S = 120
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """``recorded`` None: it could not be tried, and ``reason`` says why."""

    recorded: bool | None
    reason: str = ""


def probe_ranges(tool: NsysTool) -> Probe:
    """Profile a small program for two seconds and look for its range in the export."""
    probe = _try(tool)
    for _ in range(_TRIES - 1):
        if probe.recorded is None:
            probe = _try(tool)
    return probe


def _try(tool: NsysTool) -> Probe:
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        report = Path(folder) / "probe.nsys-rep"
        request = NsysRequest(
            command=(sys.executable, "-c", _PROGRAM), output=str(report.with_suffix("")), trace=("nvtx",)
        )
        line = build_line(request, tool)
        try:
            done = subprocess.run(
                line.words, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Probe(recorded=None, reason=str(error))
        if not report.exists():
            words = [text.strip() for text in (done.stdout + done.stderr).splitlines() if text.strip()]
            return Probe(recorded=None, reason=words[-1] if words else "nsys made no report")
        try:
            facts = keep_export(report, report.with_suffix(".sqlite"), nsys=tool.path)
        except StepscopeError as error:
            return Probe(recorded=None, reason=error.message)
    return Probe(recorded=facts.our_ranges > 0)
