"""Builds small Kineto traces for tests, in the layouts that recorders write."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]

HEADER: Json = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0,
         "numSms": 132, "maxThreadsPerMultiprocessor": 2048}
    ],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8,
                        "pg_config": [{"pg_name": "0"}, {"pg_name": "1"}]},
    "baseTimeNanoseconds": 1790857026000000000,
}  # fmt: skip
PID = 682
TID = 690


def operator(name: str = "aten::mm", ts: float = 1000.0, dur: float = 50.0, **args: Any) -> Json:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": PID, "tid": TID, "ts": ts, "dur": dur,
            "args": {"External id": 7} | args}  # fmt: skip


def launch(
    correlation: int = 1, ts: float = 1010.0, dur: float = 5.0, name: str = "cudaLaunchKernel"
) -> Json:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": PID, "tid": TID, "ts": ts, "dur": dur,
            "args": {"External id": 7, "cbid": 211, "correlation": correlation}}  # fmt: skip


def kernel(
    correlation: int = 1, ts: float = 1020.0, dur: float = 30.0, name: str = "gemm", **args: Any
) -> Json:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
            "args": {"External id": 7, "queued": 0, "device": 0, "context": 1, "stream": 7,
                     "correlation": correlation, "registers per thread": 32, "shared memory": 49152,
                     "blocks per SM": 2.1, "warps per SM": 16.8, "grid": [139, 2, 1], "block": [256, 1, 1],
                     "est. achieved occupancy %": 26} | args}  # fmt: skip


def annotation(name: str, ts: float = 900.0, dur: float = 500.0, **args: Any) -> Json:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": PID, "tid": TID, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def memory(allocated: int, reserved: int, ts: float, device: int = 0) -> Json:
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID, "tid": TID,
            "ts": ts,
            "args": {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": 512,
                     "Device Id": device, "Device Type": 1 if device >= 0 else 0, "Addr": 1}}  # fmt: skip


SMALL = [
    operator(),
    launch(1),
    kernel(1),
    launch(2, ts=1100),
    kernel(2, ts=1120.5, dur=10.25, name="softmax"),
]


def document(events: list[Json], header: Json = HEADER, *, after: bool = False) -> Json:
    """Metadata before the events, or after them as on-demand traces have it."""
    return {"traceEvents": events, **header} if after else {**header, "traceEvents": events}


def pretty(content: Json) -> str:
    """libkineto's own layout: one event over several lines, its neighbours separated by ``},\\n  {``."""

    def event(entry: Json) -> str:
        outer = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in entry.items() if k != "args")
        inner = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in entry.get("args", {}).items())
        return f'  {{\n    {outer},\n    "args": {{\n      {inner}\n    }}\n  }}'

    parts = []
    for key, value in content.items():
        body = json.dumps(value)
        if key == "traceEvents":
            body = "[\n" + ",\n".join(event(entry) for entry in value) + "\n  ]"
        parts.append(f"  {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def indented(content: Json) -> str:
    """What ``json.dump(indent=2)`` makes of a trace that passed through Python."""
    return json.dumps(content, indent=2)


def compact(content: Json) -> str:
    """One line without spaces."""
    return json.dumps(content, separators=(",", ":"))


LAYOUTS = {"pretty": pretty, "indented": indented, "compact": compact}


def write(path: Path, text: str | bytes) -> Path:
    """Write as the name says: ``.gz`` is compressed."""
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path
