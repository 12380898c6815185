"""Cuts a Nsight Systems SQLite export to intervals of host time."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from stepscope.model.errors import UnreadableInputError
from stepscope.record.atomic import atomic_path
from stepscope.record.nsight.keep import remove_environment
from stepscope.record.trace_writing.trace_window import Intervals

_DEVICE_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
)
"""Kept where their launch is; by their own start where it is not recorded."""
_LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES = "NVTX_EVENTS"
_RANGE_KINDS = "(59, 60)"
_KEPT_WHOLE = ("TARGET_INFO_", "ENUM_", "META_DATA_", "EXPORT_META_DATA", "CUDA_GRAPH_NODE_EVENTS")
"""Tables that describe the recording, and nodes made before they are replayed."""


def slice_nsight(database: Path, output: Path, intervals: Sequence[tuple[int, int]]) -> None:
    """Write a copy of the export with what lies in the intervals (export's ns); ranges are clipped to them.

    Raises:
        UnreadableInputError: ``database`` is damaged.
        RunFailedError: ``output`` cannot be written.

    """
    with atomic_path(output) as temporary:
        shutil.copyfile(database, temporary)
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            _cut(connection, Intervals.union(intervals))
        except sqlite3.Error as error:
            raise UnreadableInputError(f"{database} is a damaged SQLite database: {error}.") from error
        finally:
            connection.close()
        remove_environment(temporary)  # no export that we write holds it; and the space is given back


def _cut(connection: sqlite3.Connection, window: Intervals) -> None:
    connection.execute("CREATE TEMP TABLE kept (low INTEGER, high INTEGER)")
    pairs = zip(window.starts, window.ends, strict=True)
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO kept VALUES (?, ?)", pairs)
    tables = {name: _columns(connection, name) for name in _tables(connection)}
    if "correlationId" in tables.get(_LAUNCHES, ()):
        _cut_device(connection, tables)
    for table, columns in tables.items():
        if table in _DEVICE_TABLES or table.startswith(_KEPT_WHOLE) or "start" not in columns:
            continue
        if table == _RANGES:
            _cut_ranges(connection, window)
        else:
            connection.execute(f'DELETE FROM "{table}" WHERE NOT {_inside("start")}')  # noqa: S608
    connection.execute("COMMIT")


def _cut_device(connection: sqlite3.Connection, tables: dict[str, frozenset[str]]) -> None:
    """Correlation ids are unique only within a process: the thread's and the work's id share its bits."""
    connection.execute(
        "CREATE TEMP TABLE launched AS SELECT correlationId AS id, globalTid >> 24 AS process, "  # noqa: S608
        f'MAX({_inside("start")}) AS kept FROM "{_LAUNCHES}" GROUP BY correlationId, globalTid >> 24'
    )
    connection.execute("CREATE INDEX temp.launched_by_id ON launched (id, process)")
    for table in _DEVICE_TABLES:
        if not {"start", "correlationId"} <= tables.get(table, frozenset()):
            continue
        same = "l.id = w.correlationId"
        if "globalPid" in tables[table]:
            same += " AND l.process = w.globalPid >> 24"
        connection.execute(
            f'DELETE FROM "{table}" WHERE rowid IN (SELECT w.rowid FROM "{table}" w '  # noqa: S608
            f"LEFT JOIN launched l ON {same} WHERE NOT COALESCE(l.kept, {_inside('w.start')}))"
        )


def _cut_ranges(connection: sqlite3.Connection, window: Intervals) -> None:
    """Ranges that reach into an interval are clipped to it; domains and categories stay."""
    chosen = f'SELECT rowid, start, "end" FROM "{_RANGES}" WHERE eventType IN {_RANGE_KINDS}'  # noqa: S608
    removed: list[tuple[int]] = []
    clipped: list[tuple[int, int, int]] = []
    for row, start, end in connection.execute(chosen):
        parts = window.clip(start, window.ends[-1] if end is None else max(end, start + 1))
        if parts:
            clipped.append((parts[0][0], parts[-1][1], row))
        else:
            removed.append((row,))
    connection.executemany(f'DELETE FROM "{_RANGES}" WHERE rowid = ?', removed)  # noqa: S608
    connection.executemany(f'UPDATE "{_RANGES}" SET start = ?, "end" = ? WHERE rowid = ?', clipped)  # noqa: S608


def _inside(column: str) -> str:
    return f"EXISTS (SELECT 1 FROM kept WHERE low <= {column} AND {column} < high)"  # noqa: S608


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[1] for row in connection.execute(f'PRAGMA table_info("{table}")'))
