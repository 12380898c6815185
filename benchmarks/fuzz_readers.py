"""Coverage-guided fuzzing of both trace readers, outside CI.

    python -m venv /tmp/fuzz && /tmp/fuzz/bin/pip install atheris numpy msgspec isal zstandard
    PYTHONPATH=src /tmp/fuzz/bin/python benchmarks/fuzz_readers.py kineto -max_total_time=300 CORPUS
    PYTHONPATH=src /tmp/fuzz/bin/python benchmarks/fuzz_readers.py nsight -max_total_time=300 CORPUS

A reader must give a trace whose tables are sound, or raise StepscopeError: anything else is a crash. Without
a corpus folder the seeds below are used. ``nsight`` builds a database from the fuzzer's bytes, so that it is
the reader that is tested and not SQLite; one input in eight is handed over as raw bytes all the same.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris
import numpy as np

with atheris.instrument_imports(include=["stepscope"]):
    from stepscope.model.errors import StepscopeError
    from stepscope.model.trace import Trace
    from stepscope.record.open import read_trace

SCRATCH = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
ROOT = Path(__file__).resolve().parent.parent
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
        "registersPerThread", "gridX", "gridY", "gridZ", "staticSharedMemory", "dynamicSharedMemory",
        "graphNodeId",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start", "end", "deviceId", "streamId", "globalPid", "bytes", "copyKind", "srcKind", "dstKind",
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "deviceId", "streamId", "globalPid", "bytes", "memKind"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("start", "end", "deviceId", "streamId", "globalPid", "graphId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "textId", "globalTid", "domainId"),
    "TARGET_INFO_GPU": ("id", "name", "totalMemory", "smCount", "computeMajor", "maxWarpsPerSm"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs",),
    "META_DATA_EXPORT": ("name", "value"),
    "META_DATA_CAPTURE": ("name", "value"),
    "DIAGNOSTIC_EVENT": ("severity", "text"),
}  # fmt: skip


def main() -> None:
    """Run libFuzzer on the reader named first; all further arguments are libFuzzer's."""
    target: dict[str, Callable[[bytes], None]] = {"kineto": fuzz_kineto, "nsight": fuzz_nsight}
    chosen, arguments = sys.argv[1], [sys.argv[0], *sys.argv[2:]]
    if not any(Path(argument).is_dir() for argument in arguments[1:]):
        arguments += [f"-dict={write_dictionary()}", str(write_seeds(chosen))]
    atheris.Setup(arguments, target[chosen])
    atheris.Fuzz()


def fuzz_kineto(data: bytes) -> None:
    """The bytes are the file."""
    path = SCRATCH / "t.json"
    path.write_bytes(data)
    check(path)


def fuzz_nsight(data: bytes) -> None:
    """The bytes choose tables, columns and values of a database."""
    path = SCRATCH / "t.sqlite"
    path.unlink(missing_ok=True)
    if data[:1] and data[0] % 8 == 0:
        path.write_bytes(data[1:])
    else:
        build(path, atheris.FuzzedDataProvider(data[1:]))
    check(path)


def check(path: Path) -> None:
    """The property that holds for any file at all."""
    try:
        trace = read_trace(path)
    except StepscopeError as error:
        assert "\n" not in error.message
        return
    assert_sound(trace)


def assert_sound(trace: Trace) -> None:
    """Columns of equal length, names that exist, sorted starts, no negative duration."""
    for field in dataclasses.fields(trace):
        table = getattr(trace, field.name)
        if not dataclasses.is_dataclass(table) or isinstance(table, type):
            continue
        columns = {column.name: getattr(table, column.name) for column in dataclasses.fields(table)}
        assert len({len(values) for values in columns.values()}) == 1, field.name
        start = columns.get("start_ns", columns.get("at_ns"))
        assert (np.diff(start) >= 0).all()
        assert len(start) == 0 or 0 <= columns["name"].min() <= columns["name"].max() < len(trace.names)
        if "duration_ns" in columns:
            assert (columns["duration_ns"] >= 0).all()
            assert (start + columns["duration_ns"] >= start).all()
        if len(start) and "process" in columns:
            assert 0 <= columns["process"].min() <= columns["process"].max() < len(trace.processes)
    assert trace.operators.shapes.max(initial=-1) < len(trace.shapes)
    for shape in trace.shapes:
        json.loads(shape)


def build(path: Path, provider: atheris.FuzzedDataProvider) -> None:
    """A database with some of the tables, some of their columns, and values of any type."""
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("CREATE TABLE StringIds (id, value)")
        for index in range(provider.ConsumeIntInRange(0, 4)):
            database.execute("INSERT INTO StringIds VALUES (?, ?)", (index, value_of(provider)))
        for table, columns in TABLES.items():
            kept = [column for column in columns if provider.ConsumeIntInRange(0, 15)]
            if not kept or not provider.ConsumeIntInRange(0, 3):
                continue
            database.execute(f'CREATE TABLE "{table}" ({", ".join(kept)})')
            for _ in range(provider.ConsumeIntInRange(0, 4)):
                row = [value_of(provider) for _ in kept]
                database.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', row)
    database.close()


def value_of(provider: atheris.FuzzedDataProvider) -> object:
    """Small numbers most of the time; else any integer, real, text, blob or NULL."""
    kind = provider.ConsumeIntInRange(0, 9)
    if kind < 5:
        return provider.ConsumeIntInRange(0, 100)
    if kind == 5:
        return provider.ConsumeIntInRange(-(2**63), 2**63 - 1)
    if kind == 6:
        return provider.ConsumeFloat()
    if kind == 7:
        return provider.ConsumeUnicodeNoSurrogates(20)
    return provider.ConsumeBytes(8) if kind == 8 else None


def write_dictionary() -> Path:
    """Words of the format, for the fuzzer to put together."""
    words = [
        '"traceEvents":[', '"ph":"X"', '"cat":"kernel"', '"cat":"cpu_op"', '"cat":"gpu_memcpy"',
        '"cat":"python_function"', '"ts":', '"dur":', '"tid":"', '"pid":', '"grid":[1,1,1]', '"stream":',
        "NaN", "1e308", '"args":{',
        '"Input Dims":[[', '"stepscope":true', '"baseTimeNanoseconds":', '"distributedInfo":{"rank":',
        '"deviceProperties":[{"id":', "9007199254740993", "1796031044439059.422", "},{", "],",
    ]  # fmt: skip
    path = SCRATCH / "words.dict"
    path.write_text("".join(f"{json.dumps(word)}\n" for word in words))
    return path


def write_seeds(target: str) -> Path:
    """Inputs to start from: small traces in all layouts, packed ones, and cut fixtures of the tests."""
    folder = SCRATCH / "seeds"
    folder.mkdir()
    sys.path.insert(0, str(ROOT / "tests"))
    import kineto_files

    events = [*kineto_files.SMALL, kineto_files.annotation("STAGE x"), kineto_files.memory(1, 2, 5.0)]
    for name, layout in kineto_files.LAYOUTS.items():
        for after in (False, True):
            text = layout(kineto_files.document(events, after=after)).encode()
            (folder / f"{name}{after}").write_bytes(text)
            (folder / f"{name}{after}.gz").write_bytes(gzip.compress(text))
    if target == "nsight":
        generator = np.random.default_rng(0)
        for index in range(64):
            (folder / f"random{index}").write_bytes(generator.bytes(600))
    return folder


if __name__ == "__main__":
    main()
