"""Builds small Nsight Systems exports for tests, in the schemas of different versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

PID, TID, VM = 464, 464, 0x0001_0000_0000_0000
Row = dict[str, object]


def global_pid(pid: int = PID) -> int:
    return VM | pid << 24


def global_tid(pid: int = PID, tid: int = TID) -> int:
    return global_pid(pid) | tid


class Strings(dict[str, int]):
    """Text to id, as StringIds has them; ids do not start at 0 and have holes."""

    def __missing__(self, text: str) -> int:
        index = self[text] = 7 + 3 * len(self)
        return index


def kernel(strings: Strings, start: int, *, correlation: int = 1, pid: int = PID, **more: object) -> Row:
    return {
        "start": start, "end": start + 100, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": correlation, "globalPid": global_pid(pid),
        "demangledName": strings["gemm<float>(int)"],
        "shortName": strings["gemm"], "registersPerThread": 32, "gridX": 139, "gridY": 2, "gridZ": 1,
        "blockX": 256, "blockY": 1, "blockZ": 1,
        "staticSharedMemory": 16, "dynamicSharedMemory": 48,
    } | more  # fmt: skip


def call(
    strings: Strings,
    start: int,
    *,
    correlation: int = 1,
    pid: int = PID,
    name: str = "cudaLaunchKernel_v7000",
) -> Row:
    return {
        "start": start, "end": start + 10, "eventClass": 0, "globalTid": global_tid(pid),
        "correlationId": correlation,
        "nameId": strings[name], "returnValue": 0,
    }  # fmt: skip


def span(start: int, end: int | None, **more: object) -> Row:
    return {"start": start, "end": end, "eventType": 59, "text": None, "textId": None, "domainId": 0,
            "globalTid": global_tid()} | more  # fmt: skip


def export(path: Path, strings: Strings, tables: dict[str, Sequence[Row]]) -> Path:
    """Write an export with exactly these tables; a column is there if its first row has it."""
    base: dict[str, Sequence[Row]] = {
        "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2026.2.1"}],
        "META_DATA_CAPTURE": [{"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": "SECRET_TOKEN=hunter2"}],
        "StringIds": [{"id": index, "value": text} for text, index in strings.items()],
    }
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        for name, rows in (base | tables).items():
            columns = list(rows[0]) if rows else ["start", "end"]
            database.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
            marks = ", ".join("?" * len(columns))
            database.executemany(
                f'INSERT INTO "{name}" VALUES ({marks})',
                [[row.get(column) for column in columns] for row in rows],
            )
    database.close()
    return path
