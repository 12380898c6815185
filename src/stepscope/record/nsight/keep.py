"""Keeps an SQLite export beside its report, without the environment that nsys writes into it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from stepscope.model.errors import UnreadableInputError
from stepscope.model.nsight import ExportFacts
from stepscope.record.atomic import atomic_path
from stepscope.record.nsight.about import gpu_names
from stepscope.record.nsight.export import exported
from stepscope.record.nsight.nvtx import DOMAIN_CREATE, OUR_DOMAIN, PUSH_POP, START_END
from stepscope.record.nsight.tables import NsightTables, open_export
from stepscope.record.reader_warnings import WarningLog

_ENVIRONMENT_ROWS = (
    ("TARGET_INFO_SYSTEM_ENV", "name", "%environment%"),
    ("META_DATA_CAPTURE", "name", "%environment%"),
    ("META_DATA_EXPORT", "name", "EXPORT_USER"),
    ("EXPORT_META_DATA", "name", "EXPORT_USER"),
)
"""Table, column and pattern (SQL's LIKE, which ignores case) of rows that hold environment variables."""
_ENVIRONMENT_STRINGS = """
    UPDATE StringIds SET value = '' WHERE instr(CAST(value AS BLOB), x'3d') > 0 AND (
        instr(CAST(value AS BLOB), x'00') > 0 OR value GLOB '[A-Z_][A-Z_]*=*' AND value NOT GLOB '*[ (]*=*'
    )
"""
"""nsys reads the environment of every process of the machine into its strings, one variable after the other
with a NUL between: no kernel or range is called like that. A lone variable looks like NAME=."""


def keep_export(report: Path, database: Path, *, nsys: str | None = None) -> ExportFacts:
    """Export ``report`` to ``database``, environment rows removed, and say what it holds.

    ``nsys`` is the one to export with; None: the one on PATH.

    Raises:
        UnreadableInputError: nsys cannot export it.
        RunFailedError: ``database`` cannot be written.

    """
    with exported(report, nsys) as export, atomic_path(database) as temporary:
        shutil.copyfile(export, temporary)
        remove_environment(temporary)
    return export_facts_of(database)


def remove_environment(database: Path) -> int:
    """Delete every environment row, and their bytes from the file; the number of rows deleted or emptied."""
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA secure_delete = ON")
        present = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        deleted = 0
        for table, column, pattern in _ENVIRONMENT_ROWS:
            if table in present:
                statement = f'DELETE FROM "{table}" WHERE "{column}" LIKE ?'  # noqa: S608  # fixed names
                deleted += connection.execute(statement, (pattern,)).rowcount
        if "StringIds" in present:
            deleted += connection.execute(_ENVIRONMENT_STRINGS).rowcount
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        raise UnreadableInputError(f"{database} is no usable export: {error}.") from error
    finally:
        connection.close()
    return deleted


def export_facts_of(database: Path) -> ExportFacts:
    """What diagnosis needs to know of an export."""
    try:
        with open_export(database) as connection:
            return _facts(NsightTables(connection, WarningLog()))
    except sqlite3.Error as error:
        raise UnreadableInputError(f"{database} is no usable export: {error}.") from error


def _facts(tables: NsightTables) -> ExportFacts:
    events = tables.integers("NVTX_EVENTS", ("eventType", "domainId"))
    ranges = (events["eventType"] == PUSH_POP) | (events["eventType"] == START_END)
    domains = _our_domains(tables)
    return ExportFacts(
        kernels=_count(tables, "CUPTI_ACTIVITY_KIND_KERNEL"),
        launches=_count(tables, "CUPTI_ACTIVITY_KIND_RUNTIME"),
        ranges=int(ranges.sum()),
        our_ranges=sum(int((ranges & (events["domainId"] == domain)).sum()) for domain in domains),
        our_domain=bool(domains),
        whole_graphs=_count(tables, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
        gpus=tuple(name for name in gpu_names(tables).values() if name),
        diagnostics=_diagnostics(tables),
    )


def _our_domains(tables: NsightTables) -> set[int]:
    if "text" not in tables.columns("NVTX_EVENTS"):
        return set()
    strings = tables.strings()
    terms = "eventType, domainId, CAST(text AS TEXT), textId"
    return {
        int(domain)
        for batch in tables.rows("NVTX_EVENTS", terms)
        for kind, domain, text, text_id in batch
        if kind == DOMAIN_CREATE and (text or strings.get(text_id, "")) == OUR_DOMAIN
    }


def _count(tables: NsightTables, table: str) -> int:
    return sum(len(batch) for batch in tables.rows(table, "1")) if table in tables.present else 0


def _diagnostics(tables: NsightTables) -> tuple[str, ...]:
    if "text" not in tables.columns("DIAGNOSTIC_EVENT"):
        return ()
    batches = tables.rows("DIAGNOSTIC_EVENT", "CAST(text AS TEXT)")
    return tuple(text for batch in batches for (text,) in batch if text)
