"""The full JSON report against stdlib ``json.load(gzip.open(...))``, whole processes in turn, and its growth.

    python benchmarks/report_speed.py [--rounds 7] [--trace FILE ...] [--synthetic 1000000 2000000 5000000]

Seconds are those of a whole process, interpreter and imports included; memory is the peak over the process
and its children. Recorded traces are looked for in ../shared/traces. Traces above a million events are not
given to json.load, which needs 1.7 GB for each million.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from read_trace import JSON_AT_MOST, parse, recorded
from synthetic_trace import write_trace

ROW = "{:<28} {:>10} {:>16} {:>16} {:>6} {:>9} {:>6} {:>6}"
STDLIB = "import gzip, json, sys; json.load(gzip.open(sys.argv[1]))"
COUNTED = "import json, sys; print(json.load(sys.stdin)['ranks'][0]['event_count'])"
MEASURED = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(json.dumps([done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024]))
"""


def main() -> int:
    """Measure and print a table."""
    arguments = parse(__doc__, rounds=7)
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(ROW.format("trace", "events", "report, s", "json.load, s", "ratio", "us/event", "MiB", "MiB"))
    for path in arguments.trace or recorded():
        show(path, arguments.rounds)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as directory:
        for events in arguments.synthetic:
            path = Path(directory) / f"synthetic_{events}.trace.json.gz"
            write_trace(path, events)
            show(path, max(arguments.rounds // 3, 1))
            path.unlink()
    return 0


def show(path: Path, rounds: int) -> None:
    """One row: report and json.load in turn, medians and their ratio."""
    report = [sys.executable, "-m", "stepscope", "report", str(path), "--format", "json"]
    events = event_count(report)
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for _ in range(rounds):
        ours.append(measure(report))
        if events <= JSON_AT_MOST:
            theirs.append(measure([sys.executable, "-c", STDLIB, str(path)]))
    mine, other = median(ours), median(theirs)
    cells = [
        path.name.split(".")[0],
        f"{events:,}",
        seconds(ours),
        seconds(theirs),
        f"{mine / other:.2f}" if other else "-",
        f"{1e6 * mine / events:.2f}",
        f"{max(peak for _, peak in ours):.0f}",
        f"{max(peak for _, peak in theirs):.0f}" if theirs else "-",
    ]
    print(ROW.format(*cells), flush=True)


def event_count(report: Sequence[str]) -> int:
    """The events in the trace, as the report counts them; also warms the file's cache."""
    with subprocess.Popen(report, stdout=subprocess.PIPE) as process:
        counted = subprocess.run(
            [sys.executable, "-c", COUNTED], stdin=process.stdout, capture_output=True, check=True
        )
    return int(counted.stdout)


def measure(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of one run of a command, and the peak MiB of its largest process."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-S", "-c", MEASURED, *command], capture_output=True, check=True)
    elapsed = time.perf_counter() - start
    status, peak = json.loads(done.stdout)
    if status:
        raise SystemExit(f"{' '.join(command)} gave exit status {status}")
    return elapsed, peak


def median(readings: Sequence[tuple[float, float]]) -> float:
    """The median of the times; 0 without any."""
    return statistics.median(elapsed for elapsed, _ in readings) if readings else 0.0


def seconds(readings: Sequence[tuple[float, float]]) -> str:
    """Median and spread of the times, as text."""
    if not readings:
        return "-"
    times = [elapsed for elapsed, _ in readings]
    return f"{statistics.median(times):.2f} +- {max(times) - min(times):.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
