"""A server under many requests, ten of them traced while it serves.

    python benchmarks/engines/server.py [REQUESTS] [ENGINES]       (default: 1000 .engines)

Starts ``stepscope run --records ... -- sglang serve`` with the tiniest model, sends the requests one after
the other, switches tracing on for ten in the middle, and says: requests failed, records, traces, memory of
the worker over time, and the wall time of requests with observation on and off, interleaved.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from serving import ROOT, Server, start, stepscope

TRACED = 10
KEPT_RECORDS = 1000  # of requests that are not traced, by one process
MOST_GROWN_MB = 8.0
"""What the memory of the worker may grow in a quarter of the requests: allocators keep what they got."""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    engines = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / ".engines").absolute()
    records = Path(tempfile.mkdtemp(prefix="stepscope-server-"))
    before = stepscope("run", "--records", records, "--profile-dir", records / "traces", "--")
    server = start(before, engines, records / "server.log")
    try:
        server.wait_until_ready()
        result = drive(server, count, records)
    finally:
        server.stop()
    result["traces"] = len(list((records / "traces").glob("*.trace.json.gz")))
    print(json.dumps(result, indent=2))
    failures = failed(result)
    print("\n".join(f"FAILED: {one}" for one in failures) or "\nEverything that must hold holds.")
    sys.exit(bool(failures))


def failed(result: dict) -> list[str]:
    """What must hold and does not."""
    memory = result["worker_memory_mb"]
    half = len(memory) // 2  # here lie the traces, whose profiler stays loaded
    before, after = memory[half // 2 : half], memory[half + half // 2 :]  # the first requests load things
    grown = {"before the traces": before[-1] - before[0], "after them": after[-1] - after[0]}
    checks = {
        f"{result['failed']} requests failed": result["failed"] == 0,
        f"{result['records']} records of {result['expected_records']}": (
            result["records"] == result["expected_records"]
        ),
        f"{result['traces']} traces of {TRACED}": result["traces"] == TRACED,
        f"the log says: {result['log']}": not result["log"],
        **{f"memory grew by {mb:.1f} MB {when}": mb < MOST_GROWN_MB for when, mb in grown.items()},
    }
    return [text for text, holds in checks.items() if not holds]


def drive(server: Server, count: int, records: Path) -> dict:
    walls: dict[bool, list[float]] = {True: [], False: []}
    memory: list[float] = []
    failed = 0
    for number in range(count):
        observed = interleaved(records, number, count)
        begin = time.perf_counter()
        failed += not server.answered(f"a logo {number}")
        if observed is not None:
            walls[observed].append(1000 * (time.perf_counter() - begin))
        if number % max(1, count // 20) == 0:
            memory.append(worker_megabytes(records))
    time.sleep(2)
    return {
        "requests": count + 1,
        "failed": failed,
        "records": len(list((records / "calls").glob("*.json"))),
        "expected_records": TRACED + min(count + 1 - count // 5 // 2 - TRACED, KEPT_RECORDS),
        "worker_memory_mb": memory,
        "observed_ms": spread(walls[True]),
        "unobserved_ms": spread(walls[False]),
        "log": (records / "stepscope.log").read_text() if (records / "stepscope.log").exists() else "",
        "folder": str(records),
    }


def interleaved(records: Path, number: int, count: int) -> bool | None:
    """The first fifth alternates observation; ten requests in the middle are traced; the rest is observed."""
    path = records / "control.json"
    if number < count // 5:
        write(path, {"observe": number % 2 == 0})
        return number % 2 == 0
    if number == count // 5:
        path.unlink(missing_ok=True)
    if number == count // 2:
        write(path, {"next": TRACED, "steps": 1})
    return None


def write(path: Path, control: dict) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(control))
    temporary.replace(path)


def worker_megabytes(records: Path) -> float:
    """Resident memory of the process that writes the calls."""
    calls = sorted((records / "calls").glob("*.json"))
    if not calls:
        return 0.0
    pid = calls[-1].name.partition("-")[0]
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def spread(values: list[float]) -> dict:
    if len(values) < 2:
        return {}
    quarters = statistics.quantiles(values, n=4)
    return {"n": len(values), "median": quarters[1], "q1": quarters[0], "q3": quarters[2]}


if __name__ == "__main__":
    main()
