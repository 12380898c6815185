"""A server under many requests, ten of them traced while it serves.

    python benchmarks/engines/server.py [REQUESTS] [ENGINES]       (default: 1000 .engines)

Starts ``stepscope run --records ... -- sglang serve`` with the tiniest model, sends the requests one after
the other, switches tracing on for ten in the middle, and says: requests failed, records, traces, memory of
the worker over time, and the wall time of requests with observation on and off, interleaved.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PORT = 30917
TRACED = 10
STEPSCOPE = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from stepscope.cli import main
sys.exit(main())
"""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    engines = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / ".engines").absolute()
    records = Path(tempfile.mkdtemp(prefix="stepscope-server-"))
    server = start(engines, records)
    try:
        wait_until_ready(server)
        result = drive(count, records, engines)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    print(json.dumps(result, indent=2))


def start(engines: Path, records: Path) -> subprocess.Popen:
    """The server below ``stepscope run``; only the server's own path is in PYTHONPATH."""
    sglang = engines / "env" / "bin" / "sglang"
    model = engines / "models" / "tiny" / "Qwen-Image"
    command = [
        *(sys.executable, "-c", STEPSCOPE, "run", "--records", records),
        *("--profile-dir", records / "traces", "--", sglang, "serve", "--model-path", model),
        *("--model-id", "Qwen-Image", "--backend", "sglang", "--host", "127.0.0.1", "--port", PORT),
    ]
    path = str(HERE / "stand_ins" / "sglang_cpu")
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with (records / "server.log").open("w") as log:
        return subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log)


def wait_until_ready(server: subprocess.Popen, timeout_s: float = 300) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and server.poll() is None:
        if answered("warm up"):
            return
        time.sleep(1)
    sys.exit("the server did not come up")


def request(prompt: str) -> bytes:
    body = {
        "prompt": prompt,
        "size": "64x64",
        "num_inference_steps": 2,
        "response_format": "b64_json",
        "n": 1,
    }
    asked = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/images/generations",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=120) as answer:
        return answer.read()


def answered(prompt: str) -> bool:
    try:
        request(prompt)
    except OSError:  # urllib's errors are of this kind
        return False
    return True


def drive(count: int, records: Path, engines: Path) -> dict:
    walls: dict[bool, list[float]] = {True: [], False: []}
    memory: list[float] = []
    failed = 0
    for number in range(count):
        observed = interleaved(records, number, count)
        begin = time.perf_counter()
        failed += not answered(f"a logo {number}")
        if observed is not None:
            walls[observed].append(1000 * (time.perf_counter() - begin))
        if number % max(1, count // 20) == 0:
            memory.append(worker_megabytes(records))
    time.sleep(2)
    return {
        "requests": count + 1,
        "failed": failed,
        "records": len(list((records / "calls").glob("*.json"))),
        "raw_traces": len(list((records / "raw").glob("*.json"))),
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
