"""Access to a Nsight Systems SQLite export whose tables and columns differ from version to version.

Tables are created only when there is something in them, columns come and go, rows stand in no order. A
column that an export lacks has the value that means unknown; numbers are cast, whatever the file holds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from stepscope.record.reader_warnings import WarningLog

SQLITE_MAGIC = b"SQLite format 3\0"
_FARTHEST_NS = 4 * 10**18
_ROWS_AT_ONCE = 50_000
_LONGEST_TEXT = 100_000  # characters; demangled names run to 10,000
_SIGNATURES = (
    frozenset({"META_DATA_EXPORT"}),
    frozenset({"META_DATA_CAPTURE"}),
    frozenset({"StringIds", "ENUM_NSYS_EVENT_TYPE"}),
    frozenset({"StringIds", "NVTX_EVENTS"}),
    frozenset({"StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME"}),
    frozenset({"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"}),
)


def is_usable_time(times_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which times can be added to a duration without leaving int64."""
    return (times_ns > -_FARTHEST_NS) & (times_ns < _FARTHEST_NS)


class NsightTables:
    """Reads columns of named tables; damage in one table is noted and does not stop the others."""

    def __init__(self, connection: sqlite3.Connection, log: WarningLog) -> None:
        self._connection = connection
        self._log = log
        self.present = frozenset(table_names(connection))

    def integers(
        self, table: str, columns: Sequence[str], missing: Mapping[str, int] | None = None
    ) -> dict[str, NDArray[np.int64]]:
        """The named columns of a table as int64; -1, or what ``missing`` says, where NULL or absent."""
        defaults = dict.fromkeys(columns, -1) | dict(missing or {})
        have = self.columns(table)
        terms = [
            f'IFNULL(CAST("{column}" AS INTEGER), {defaults[column]})'
            if column in have
            else str(defaults[column])
            for column in columns
        ]
        rows = self.rows(table, ", ".join(terms)) if have else iter(())
        batches = [np.array(batch, np.int64) for batch in rows]
        flat = np.concatenate(batches) if batches else np.empty((0, len(columns)), np.int64)
        return {column: np.ascontiguousarray(flat[:, i]) for i, column in enumerate(columns)}

    def rows(self, table: str, terms: str) -> Iterator[list[tuple[Any, ...]]]:
        """Batches of rows of fixed, quoted terms. A damaged table gives the rows before the damage."""
        try:
            cursor = self._connection.execute(f'SELECT {terms} FROM "{table}"')  # noqa: S608  # fixed names only
            while batch := cursor.fetchmany(_ROWS_AT_ONCE):
                yield batch
        except sqlite3.Error as error:
            self._log.add("damaged_table", f"table {table} could not be read whole: {error}")

    def columns(self, table: str) -> frozenset[str]:
        """The columns that a table has; none where it does not exist."""
        if table not in self.present:
            return frozenset()
        try:
            return frozenset(row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")'))
        except sqlite3.Error:
            return frozenset()

    def strings(self) -> dict[int, str]:
        """``StringIds``: what all name columns refer to."""
        if not {"id", "value"} <= self.columns("StringIds"):
            return {}
        batches = self.rows(
            "StringIds", f"CAST(id AS INTEGER), CAST(substr(value, 1, {_LONGEST_TEXT}) AS TEXT)"
        )
        return {key: value or "" for batch in batches for key, value in batch}


@contextmanager
def open_export(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection that takes no lock, writes no side file and runs nothing from the schema.

    Raises:
        sqlite3.Error: not a database, or one that cannot be opened.

    """
    uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True)
    try:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        yield connection
    finally:
        connection.close()


def table_names(connection: sqlite3.Connection) -> list[str]:
    """Real tables; a view could stand for anything."""
    return [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def is_nsight(names: Sequence[str]) -> bool:
    """Whether a database with these tables is a Nsight Systems export."""
    present = frozenset(names)
    return any(signature <= present for signature in _SIGNATURES)
