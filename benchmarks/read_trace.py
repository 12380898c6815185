"""Reading a trace into columns against stdlib ``json.load(gzip.open(...))``, as ratios of one run.

    python benchmarks/read_trace.py [--rounds 5] [--trace FILE ...] [--synthetic 1000000 2000000 5000000]

Each reading is a fresh process, the two sorts in turn; seconds are those of the call alone, memory is the
process's peak with its interpreter and imports. Recorded traces are looked for in ../shared/traces. Traces
above a million events are not given to json.load, which needs 1.7 GB and a minute for each million.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from synthetic_trace import write_trace

HERE = Path(__file__).resolve()
RECORDED = "qwen_image_full_5_steps_ops.trace.json.gz"
JSON_AT_MOST = 1_000_000
ROW = "{:<30} {:>9} {:>16} {:>16} {:>6} {:>9} {:>5} {:>6}"
MEASURED = """
import json, resource, sys, time
from pathlib import Path
{imports}
path = Path(sys.argv[1])
start = time.perf_counter()
events = {call}
seconds = time.perf_counter() - start
peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([seconds, peak / 1024, events]))
"""
OURS = MEASURED.format(
    imports="from stepscope.record.open import read_trace", call="read_trace(path).event_count"
)
STDLIB = MEASURED.format(imports="import gzip", call='len(json.load(gzip.open(path))["traceEvents"])')


@dataclass(frozen=True, slots=True)
class Reading:
    """Medians over the rounds."""

    seconds: float
    spread: float  # largest minus smallest, seconds
    peak_mib: float
    events: int


def main() -> int:
    """Measure and print a table."""
    arguments = parse(__doc__, rounds=5)
    traces = arguments.trace or recorded()
    print(f"{platform.platform()}, Python {platform.python_version()}, {arguments.rounds} rounds")
    print(ROW.format("trace", "events", "ours, s", "json.load, s", "ratio", "us/event", "MiB", "MiB"))
    for path in traces:
        report(path, arguments.rounds)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as directory:
        for events in arguments.synthetic:
            path = Path(directory) / f"synthetic_{events}.trace.json.gz"
            write_trace(path, events)
            report(path, arguments.rounds)
            path.unlink()
    return 0


def parse(description: str, rounds: int) -> argparse.Namespace:
    """The command line: which traces, recorded and made up, and how often each."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--trace", type=Path, nargs="*")
    parser.add_argument("--synthetic", type=int, nargs="*", default=[1_000_000, 2_000_000, 5_000_000])
    parser.add_argument("--scratch", type=Path, default=None)
    return parser.parse_args()


def recorded() -> list[Path]:
    """The large recorded trace, wherever above this file shared/traces lies."""
    found = [parent / "shared" / "traces" / RECORDED for parent in HERE.parents]
    return [path for path in found if path.exists()][:1]


def report(path: Path, rounds: int) -> None:
    """One row: both sorts of reading in turn, then their ratio."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(measure(OURS, path))
        if ours[0][2] <= JSON_AT_MOST:
            theirs.append(measure(STDLIB, path))
    us, them = summary(ours), summary(theirs) if theirs else None
    cells = [
        path.name.split(".")[0],
        f"{us.events:,}",
        f"{us.seconds:.2f} +- {us.spread:.2f}",
        f"{them.seconds:.2f} +- {them.spread:.2f}" if them else "-",
        f"{us.seconds / them.seconds:.2f}" if them else "-",
        f"{1e6 * us.seconds / us.events:.2f}",
        f"{us.peak_mib:.0f}",
        f"{them.peak_mib:.0f}" if them else "-",
    ]
    print(ROW.format(*cells), flush=True)


def measure(code: str, path: Path) -> tuple[float, float, int]:
    """Seconds, peak MiB and events of one fresh process."""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    seconds, peak, events = json.loads(done.stdout)
    return seconds, peak, events


def summary(readings: Sequence[tuple[float, float, int]]) -> Reading:
    """Median time, spread of times, largest peak."""
    seconds = [reading[0] for reading in readings]
    return Reading(
        seconds=statistics.median(seconds),
        spread=max(seconds) - min(seconds),
        peak_mib=max(reading[1] for reading in readings),
        events=readings[0][2],
    )


if __name__ == "__main__":
    raise SystemExit(main())
