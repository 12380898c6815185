"""Cuts the small recorded traces of this folder out of the large ones beside the repository.

    python tests/data/cut_traces.py ../shared/traces

A window of host time is kept with everything that was launched in it; text and layout stay as recorded
(NVIDIA H200, torch 2.11, Nsight Systems 2023.4). The environment row of the Nsight export is made up, to test
that it is not copied.
"""

import gzip
import json
import re
import sqlite3
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "traces"
BOUNDARY = re.compile(r'(?<=\}),\s*(?=\{\s*"(?:ph|name)":)')
WINDOWS = {  # milliseconds after the first launch, and how long
    "qwen_image_full_5_steps_ops": (15.0, 14.0),
    "qwen_image_4layer_all_stages_stack_memory": (40.0, 12.0),
    "ulysses2-global-rank0": (60.0, 14.0),
}


def cut_kineto(source: Path, target: Path, start_ms: float, length_ms: float) -> None:
    text = gzip.decompress(source.read_bytes()).decode()
    opening = text.index('"traceEvents": [') + len('"traceEvents": [')
    closing = text.rindex("]")
    pieces = [p.strip() for p in BOUNDARY.split(text[opening:closing])]
    events = [(piece, json.loads(piece)) for piece in pieces]
    launches = [e["ts"] for _, e in events if e.get("cat") == "cuda_runtime"]
    start = min(launches) + start_ms * 1000
    end = start + length_ms * 1000
    inside = {
        e["args"]["correlation"]
        for _, e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and start <= e["ts"] < end
    }
    kept = [piece for piece, e in events if keeps(e, start, end, inside)]
    body = ",\n  ".join(kept)
    with gzip.GzipFile(target, "wb", compresslevel=9, mtime=0) as file:
        file.write(f"{text[:opening]}\n  {body}\n  {text[closing:]}".encode())


def keeps(event: dict, start: float, end: float, correlations: set[int]) -> bool:
    if event["ph"] == "M":
        return event["pid"] in (0, 682, 425, 981)
    if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
        return event["args"]["correlation"] in correlations
    if event.get("cat") == "ac2g":
        return event["id"] in correlations
    if event.get("cat") in ("user_annotation", "Trace"):
        return event["ts"] < end and event["ts"] + event["dur"] > start
    if event.get("cat") == "python_function":
        return event["ts"] < end and event["ts"] + event["dur"] > start and event["dur"] > 20
    return start <= event["ts"] < end


def cut_nsight(source: Path, target: Path, milliseconds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cut.sqlite"
        path.write_bytes(gzip.decompress(source.read_bytes()))
        database = sqlite3.connect(path)
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for name in names:
            if name.startswith("ENUM_") or name in (
                "TARGET_INFO_SYSTEM_ENV",
                "ThreadNames",
                "ProcessStreams",
            ):
                database.execute(f'DROP TABLE "{name}"')
        first = database.execute("SELECT MIN(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
        end = first + milliseconds * 1_000_000
        for name in names:
            if name.startswith("CUPTI_ACTIVITY"):
                database.execute(f'DELETE FROM "{name}" WHERE start >= ?', (end,))
        database.execute("DELETE FROM META_DATA_CAPTURE")
        database.executemany(
            "INSERT INTO META_DATA_CAPTURE VALUES (?, ?)",
            [
                ("PROCESS_0:ENVIRONMENT_VARIABLE", "SECRET_TOKEN=hunter2"),
                ("PROCESS_0:COMMAND", "python3"),
                ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node"),
            ],
        )
        used = "SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL UNION SELECT shortName FROM "
        used += "CUPTI_ACTIVITY_KIND_KERNEL UNION SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME "
        used += "UNION SELECT textId FROM NVTX_EVENTS WHERE textId IS NOT NULL"
        database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used})")
        database.commit()
        database.execute("VACUUM")
        database.close()
        with gzip.GzipFile(target, "wb", compresslevel=9, mtime=0) as file:
            file.write(path.read_bytes())


if __name__ == "__main__":
    shared = Path(sys.argv[1])
    for name, window in WINDOWS.items():
        cut_kineto(shared / f"{name}.trace.json.gz", HERE / f"{name}.trace.json.gz", *window)
    cut_nsight(shared / "qwen_image_4layer.nsys.sqlite.gz", HERE / "qwen_image_4layer.nsys.sqlite.gz", 40)
