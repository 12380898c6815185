"""Reads Nsight Systems SQLite exports, old and new schemas, into the same ``Trace`` as Kineto's.

Correlation ids are unique only within a process: everything joins on the process too. Of the rows about the
machine and the capture nothing is copied except versions and the graph mode: they hold environment variables.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stepscope.model.errors import UnreadableInputError
from stepscope.model.trace import Annotations, Copies, Counters, Frames, Kernels, Launches, Operators, Trace
from stepscope.model.vocabulary import TraceSource
from stepscope.record.nsight.about import devices, export_facts, gpu_names, note_diagnostics
from stepscope.record.nsight.columns import NsightColumns
from stepscope.record.nsight.tables import NsightTables, is_nsight, open_export, table_names
from stepscope.record.reader_warnings import WarningLog
from stepscope.record.trace_parts import note_overlaps, rank_in_name, waiting_calls

_KERNEL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPH_TABLE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def read_nsight(path: Path) -> Trace:
    """Read a Nsight Systems SQLite export; what is missing or damaged is told in ``warnings``.

    Raises:
        UnreadableInputError: not a SQLite database, not one of Nsight Systems, or nothing recorded in it.

    """
    log = WarningLog()
    try:
        with open_export(path) as connection:
            _check_is_nsight(path, connection)
            return _read(path, NsightTables(connection, log), log)
    except sqlite3.Error as error:
        raise UnreadableInputError(
            f"{path} is a damaged SQLite database: {error}.",
            remedy="Export the report again with nsys export.",
        ) from error


def _check_is_nsight(path: Path, connection: sqlite3.Connection) -> None:
    names = table_names(connection)
    if not is_nsight(names):
        held = ", ".join(sorted(names)[:3]) or "none"
        raise UnreadableInputError(
            f"{path} is a SQLite database of another program (tables: {held}).",
            remedy="Export a report with: nsys export --type sqlite REPORT.nsys-rep",
        )


def _read(path: Path, tables: NsightTables, log: WarningLog) -> Trace:
    columns = NsightColumns(tables, log)
    facts = export_facts(tables)
    note_diagnostics(tables, log)
    _note_missing_kernels(columns, tables, facts.graph_mode, log)
    if not columns.event_count:
        raise UnreadableInputError(
            f"{path} is a Nsight Systems export with no CUDA call, kernel or NVTX range in it.",
            remedy="Record again with --trace=cuda,nvtx and a capture range that opens.",
        )
    kernels, copies = columns.kernels.build(Kernels), columns.copies.build(Copies)
    launches = columns.launches.build(Launches)
    note_overlaps(kernels, copies, log)
    names = columns.names.texts()
    return Trace(
        path=str(path),
        source=TraceSource.NSIGHT_SYSTEMS,
        rank=rank_in_name(path),
        world_size=None,
        base_unix_ns=facts.start_unix_ns,
        names=names,
        shapes=(),
        sources=(),
        processes=columns.pids(),
        devices=devices(tables, gpu_names(tables)),
        kernels=kernels,
        copies=copies,
        launches=launches,
        operators=columns.operators.build(Operators),
        frames=columns.frames.build(Frames),
        syncs=waiting_calls(launches, names),
        annotations=columns.annotations.build(Annotations),
        counters=columns.counters.build(Counters),
        event_count=columns.event_count,
        metadata=facts.versions | ({"graph_mode": facts.graph_mode} if facts.graph_mode else {}),
        warnings=log.warnings(),
    )


def _note_missing_kernels(
    columns: NsightColumns, tables: NsightTables, graph_mode: str, log: WarningLog
) -> None:
    """Say why kernels are missing: graph mode hides those of CUDA graphs, and lazy tables are just absent."""
    if columns.graph_count:
        log.add(
            "graph_mode",
            "CUDA graphs were traced as a whole: each replay is one row and its kernels are not in the file; "
            "record with --cuda-graph-trace=node to see them",
            columns.graph_count,
        )
    elif _KERNEL_TABLE not in tables.present and columns.launch_count:
        log.add(
            "no_kernels",
            "the export holds CUDA calls but no kernel: the process may have ended before its buffers were "
            "flushed, or another profiler held CUPTI" + (" (graph mode)" if graph_mode == "Graph" else ""),
        )
    elif _KERNEL_TABLE not in tables.present:
        log.add("no_kernels", "the export holds no CUDA activity: cuda was not traced, or no call was made")
