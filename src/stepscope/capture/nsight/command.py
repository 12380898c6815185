"""Nsight Systems as a subprocess: the command line, built from the flags that this nsys has, and its run."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stepscope.model.errors import RunFailedError
from stepscope.model.nsight import (
    CAPTURE_RANGE,
    CAPTURE_VARIABLE,
    NVTX_DOMAIN,
    Capture,
    NsysRun,
    NsysTool,
    Trigger,
)

KEPT_LINES = 2000
"""Of what nsys and the application print; nsys says what went wrong at the end."""
_REPORT = re.compile(r"^\s*(/.*\.(?:nsys-rep|qdstrm))\s*$", re.MULTILINE)
_SUFFIX = ".nsys-rep"


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysRequest:
    """What to run under nsys and what to record of it."""

    command: tuple[str, ...]
    output: str  # -o as given
    trace: tuple[str, ...]
    capture: Capture | None = None
    delay_s: str | None = None
    duration_s: str | None = None
    passed_on: tuple[str, ...] = ()  # for nsys, as they are; they win over ours


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysLine:
    """A command line, and the flags that this nsys does not have."""

    words: tuple[str, ...]
    missing: tuple[str, ...] = ()


def build_line(request: NsysRequest, tool: NsysTool) -> NsysLine:
    """The whole command line. Flags that ``tool`` lacks, or the user gave, are left out."""
    given = {tool.aliases.get(name, name) for name in map(_flag_name, request.passed_on)}
    wanted = [(flag, value) for flag, value in _flags(request) if flag not in given]
    have = [f"{flag}={value}" for flag, value in wanted if flag in tool.flags]
    missing = tuple(flag for flag, _ in wanted if flag not in tool.flags)
    output = () if "--output" in given else ("-o", request.output)
    words = (tool.path or "nsys", "profile", *have, *request.passed_on, *output, *request.command)
    return NsysLine(words=words, missing=missing)


def _flags(request: NsysRequest) -> list[tuple[str, str]]:
    flags = [
        ("--trace", ",".join(request.trace)),
        ("--trace-fork-before-exec", "true"),  # ranks and workers are forked
        ("--cuda-graph-trace", "node"),  # the default hides the kernels of a graph
        ("--force-overwrite", "true"),
        # CPU samples make the report twenty times as large, and need permissions
        ("--sample", "none"),
        ("--cpuctxsw", "none"),
    ]
    if "cuda" not in request.trace:
        flags = [(flag, value) for flag, value in flags if flag != "--cuda-graph-trace"]
    capture = request.capture
    if capture is not None:
        if capture.trigger is Trigger.CUDA_PROFILER:
            flags.append(("--capture-range", "cudaProfilerApi"))
        elif capture.trigger is Trigger.NVTX:
            flags.append(("--capture-range", "nvtx"))
            flags.append(("--nvtx-capture", f"{CAPTURE_RANGE}@{NVTX_DOMAIN}"))
        if capture.trigger is not Trigger.NONE:
            flags.append(("--capture-range-end", "stop"))  # the default kills the application
        flags.append(("--env-var", f"{CAPTURE_VARIABLE}={capture.to_text()}"))
    if request.delay_s is not None:
        flags.append(("--delay", request.delay_s))
    if request.duration_s is not None:
        flags += [("--duration", request.duration_s), ("--kill", "none")]
    return flags


def _flag_name(word: str) -> str:
    return word.partition("=")[0] if word.startswith("--") else word[:2]


def expected_report(line: NsysLine, request: NsysRequest) -> Path | None:
    """Where the report is to be; None where the name holds patterns that only nsys fills in."""
    name = [request.output, *_values(line, request, "-o", "--output")][-1]
    if "%" in name:
        return None
    return Path(name if name.endswith(_SUFFIX) else name + _SUFFIX).absolute()


def run_nsys(line: NsysLine, request: NsysRequest) -> NsysRun:
    """Run it, show everything it prints as it comes, and say what it left. Ctrl-C is nsys's to handle."""
    expected = expected_report(line, request)
    before = None if expected is None or not expected.exists() else expected.stat().st_mtime_ns
    try:
        process = subprocess.Popen(line.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise RunFailedError(f"nsys could not be started: {error.strerror or error}.") from error
    said: deque[str] = deque(maxlen=KEPT_LINES)
    pumps = [
        threading.Thread(target=_pump, args=(stream, shown, said), daemon=True)
        for stream, shown in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
    ]
    for pump in pumps:
        pump.start()
    status = _wait(process)
    for pump in pumps:
        pump.join()
    text = "".join(said)
    fresh = expected is not None and expected.exists() and expected.stat().st_mtime_ns != before
    named = tuple(Path(name) for name in _REPORT.findall(text))
    report = expected if fresh else None
    if expected is None:  # a pattern in the name: nsys says where the file is
        report = next((path for path in named if path.suffix == _SUFFIX and path.exists()), None)
    return NsysRun(
        command=line.words,
        exit_status=status,
        said=text,
        capture=request.capture,
        traced=frozenset(["", *_values(line, request, "-t", "--trace")][-1].split(",")),
        report=report,
        expected=expected,
        elsewhere=tuple(path for path in named if path != report and path.exists()),
    )


def _values(line: NsysLine, request: NsysRequest, short: str, long: str) -> list[str]:
    """The values that a flag of nsys has in the line, the application's own words left out."""
    words = line.words[: len(line.words) - len(request.command)]
    pairs = zip(words, (*words[1:], ""), strict=True)
    return [
        following if word in {short, long} else word.partition("=")[2]
        for word, following in pairs
        if word in {short, long} or word.startswith(f"{long}=")
    ]


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        # The terminal sends Ctrl-C to nsys and to the application as well: nsys then writes the report.
        with suppress(KeyboardInterrupt):
            return process.wait()


def _pump(stream: IO[bytes] | None, shown: IO[bytes], said: deque[str]) -> None:
    assert stream is not None
    for chunk in iter(stream.readline, b""):
        # nsys draws its progress with carriage returns; only the last state of a line is kept
        said.append(chunk.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2] + "\n")
        shown.write(chunk)
        shown.flush()
