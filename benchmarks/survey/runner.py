"""The survey as a whole: batches in processes of their own, each class with a time limit, restartable."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

BATCH = 12
"""Classes a process: importing the libraries takes as long as surveying some of them."""
START_S = 180
"""What importing the libraries may take on a busy machine."""
_ROOT = Path(__file__).parents[1]


def survey(names: Iterable[str], *, limit_s: float) -> Iterator[dict[str, Any]]:
    """A row for each class, as each is done. A class that takes longer than ``limit_s`` is a failure."""
    waiting = list(names)
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        left = list(batch)
        for row in _run_batch(batch, limit_s):
            left.remove(row["name"])
            yield row
        waiting = left + waiting


def _run_batch(names: list[str], limit_s: float) -> Iterator[dict[str, Any]]:
    """Rows until the process ends; the class in which it was stopped or died gets one too."""
    process = _start(names)
    current, reason = names[0], ""
    try:
        for line in _lines(process, limit_s):
            message = json.loads(line)
            if "begin" in message:
                current = message["begin"]
                continue
            yield message
            current = ""
        reason = f"the process ended with status {process.wait()}"
    except TimeoutError:
        reason = f"took longer than {limit_s:.0f} s"
    finally:
        process.kill()
        process.wait()
    if current:
        yield {"name": current, "status": "failed", "reason": reason}


def _start(names: list[str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(_ROOT), str(_ROOT.parent / "src"), os.environ.get("PYTHONPATH", "")]
        ),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "survey.worker", *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _lines(process: subprocess.Popen[bytes], limit_s: float) -> Iterator[bytes]:
    """The JSON lines a process prints; TimeoutError when one is not there in time."""
    assert process.stdout is not None
    held = b""
    deadline = time.monotonic() + START_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                return
            *whole, held = (held + chunk).split(b"\n")
            for line in whole:
                if line.startswith(b"{"):
                    deadline = time.monotonic() + limit_s
                    yield line


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows that an earlier survey wrote; a line that was cut off is left out."""
    rows = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row["name"]] = row
    return rows
