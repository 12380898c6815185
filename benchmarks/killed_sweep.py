"""A real sweep of twelve points on this CPU, killed with SIGKILL: does it end with exactly its twelve points?

Locally the sweep itself is killed twice and started again with the same command; with ``--executor ray`` one
of the two workers on a local Ray is killed at work, and the sweep is started once. The pipeline is the
embedded one with random weights.

    python benchmarks/killed_sweep.py [--executor ray] [--dir DIR]
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from stepscope.model.sweep import SweepRow
from stepscope.record.json_lines import read_lines

POINTS = 12
KILLS_AFTER = (3, 8)  # rows
AXES = ["--resolutions", "64x64,128x64,128x128", "--steps", "1,2", "--vs", "--guidance-scale 3"]
CALL = ["--", "generate", "--prompt", "a logo"]
PATIENCE_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--dir", type=Path)
    arguments = parser.parse_args()
    folder = arguments.dir or Path(tempfile.mkdtemp(prefix="killed-sweep-"))
    command = [sys.executable, "-m", "stepscope", "sweep", *AXES, "--repeats", "1", "--dir", str(folder)]
    rows_path = folder / "sweep.jsonl"
    start = time.monotonic()
    if arguments.executor == "local":
        status, kept = _killed_sweeps([*command, *CALL], rows_path)
    else:
        ray = ["--executor", "ray", "--workers", "2"]
        status, kept = _killed_worker([*command, *ray, *CALL], rows_path)
    rows = read_lines(rows_path, SweepRow)
    whole = len(rows) == POINTS == len({row.id for row in rows}) == len({row.point for row in rows})
    measured = sum(row.status == "ok" for row in rows)
    again = [row.point.label for row in rows if row.attempts > 1]
    print(f"{len(rows)} rows, {len({row.id for row in rows})} different points, {measured} measured, {kept}")
    print(
        f"tried again: {', '.join(again) or 'none'}; exit status {status}; {time.monotonic() - start:.0f} s"
    )
    return 0 if whole and measured == POINTS and status == 0 else 1


def _killed_sweeps(command: list[str], path: Path) -> tuple[int, str]:
    """Kill the sweep twice, then let it end; its status, and whether rows that were there stayed."""
    seen = []
    for count in KILLS_AFTER:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _wait(process, lambda count=count: len(_lines(path)) >= count)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.append(_lines(path))
        print(f"killed {process.pid} after {len(seen[-1])} rows")
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    final = _lines(path)
    same = all(final[: len(lines)] == lines for lines in seen)
    return status, "rows there before a kill unchanged" if same else "ROWS CHANGED"


def _killed_worker(command: list[str], path: Path) -> tuple[int, str]:
    """Kill one worker while it is at a point."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _wait(process, lambda: len(_lines(path)) >= KILLS_AFTER[0] and bool(_busy_workers(process.pid)))
    victim = _busy_workers(process.pid)[0]
    victim.kill()
    return process.wait(), f"killed worker {victim.pid}"


def _busy_workers(driver: int) -> list[psutil.Process]:
    """Ray names a worker's process after the method that it is in."""
    children = psutil.Process(driver).children(recursive=True)
    return [each for each in children if each.name().startswith("ray::PointRunn")]


def _wait(process: subprocess.Popen[bytes], ready: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ready():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the sweep ended before it could be killed")
        time.sleep(0.01)


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


if __name__ == "__main__":
    raise SystemExit(main())
