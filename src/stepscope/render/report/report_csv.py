"""The report's tables as CSV: raw values at full precision, one table a call.

Text comes from traces, and spreadsheets run cells that begin with certain signs as formulas; such text gets
an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from stepscope.analyse.results import EngagedView, RankReport, Report, RunSummary, Source, Trust
from stepscope.model.errors import UsageError
from stepscope.render.names import visible
from stepscope.render.report import operator_tables, rank_tables, report_tables, run_tables
from stepscope.render.tables import Column, Kind, Table, Value, build

_FORMULA_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "|", "%")
_RUN_TABLES: tuple[Callable[[RunSummary], Table], ...] = (
    run_tables.run_stages,
    run_tables.run_steps,
    run_tables.run_outside,
    run_tables.run_facts,
)
_RANK_TABLES: tuple[Callable[[RankReport], Table], ...] = (
    rank_tables.rank_stages,
    rank_tables.rank_steps,
    rank_tables.rank_categories,
    rank_tables.rank_kernels,
    rank_tables.rank_transfers,
    rank_tables.rank_idle,
    rank_tables.rank_annotations,
    operator_tables.rank_operators,
    operator_tables.rank_operator_categories,
    operator_tables.rank_lines,
    operator_tables.rank_modules,
    lambda rank: rank_tables.findings_table(rank.findings),
    rank_tables.rank_busy,
    rank_tables.rank_memory,
)
CSV_TABLES = (
    "kernels",
    "categories",
    "operators",
    "operator_categories",
    "lines",
    "modules",
    "stages",
    "steps",
    "transfers",
    "findings",
    "idle",
    "annotations",
    "busy",
    "memory",
    "gpus",
    "runs",
    "run_stages",
    "run_steps",
    "run_outside",
    "run_facts",
    "warnings",
)
"""What ``render_csv`` can give; every table has its head even where it has no rows."""


def render_csv(report: Report, table: str) -> str:
    """One table of ``CSV_TABLES`` over all runs and ranks, with a head line.

    Raises:
        UsageError: there is no such table.

    """
    found = _tables(report).get(table)
    if found is None:
        raise UsageError(f"There is no table '{table}'.", remedy=f"Choose one of: {', '.join(CSV_TABLES)}.")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([key for column in found.columns for key in _keys(column)])
    for row in found.rows:
        cells = zip(found.columns, row, strict=True)
        writer.writerow([cell for column, value in cells for cell in _cells(column.kind, value)])
    return stream.getvalue()


def _tables(report: Report) -> dict[str, Table]:
    whole = [report_tables.gpus_table(report), report_tables.runs_table(report), _warnings(report)]
    whole += [_over_runs(make, report.runs) for make in _RUN_TABLES]
    whole += [_over_ranks(make, report.ranks) for make in _RANK_TABLES]
    return {table.name: table for table in map(partial(_with_findings_of, report.runs), whole)}


def _with_findings_of(runs: Sequence[RunSummary], table: Table) -> Table:
    """The table of findings with those that need no trace, after the traces'; any other as it is."""
    if table.name != "findings":
        return table
    rows = [
        (run.rank, run.path or run.request_id, *row)
        for run in runs
        for row in rank_tables.findings_table(run.findings).rows
    ]
    return replace(table, rows=(*table.rows, *rows))


def _warnings(report: Report) -> Table:
    rows = [("untrusted", reason) for reason in report.trust.reasons if not report.trust.ok]
    rows += [("warning", text) for text in report.warnings]
    rows += [(f"run {run.request_id}", text) for run in report.runs for text in run.warnings]
    columns = (Column(key="kind", title="kind"), Column(key="text", title="text"))
    return build("warnings", "Warnings", columns, rows)


def _over_runs(make: Callable[[RunSummary], Table], runs: Sequence[RunSummary]) -> Table:
    columns = (Column(key="run", title="run"), Column(key="rank", title="rank", kind=Kind.INDEX))
    return _joined(columns, [((run.request_id, run.rank), make(run)) for run in runs], make(_NO_RUN))


def _over_ranks(make: Callable[[RankReport], Table], ranks: Sequence[RankReport]) -> Table:
    columns = (Column(key="rank", title="rank", kind=Kind.INDEX), Column(key="trace", title="trace"))
    return _joined(columns, [((rank.rank, rank.path), make(rank)) for rank in ranks], make(_NO_RANK))


def _joined(
    columns: tuple[Column, ...], parts: Sequence[tuple[tuple[Value, ...], Table]], empty: Table
) -> Table:
    rows = [(*prefix, *row) for prefix, table in parts for row in table.rows]
    return build(empty.name, empty.caption, (*columns, *empty.columns), rows)


def _keys(column: Column) -> list[str]:
    if column.kind is not Kind.SOURCE:
        return [column.key]
    return ["source_file", "source_line", "source_line_exact", "source_function"]


def _cells(kind: Kind, value: Value) -> list[str | int | float]:
    if kind is Kind.SOURCE:
        if not isinstance(value, Source):
            return [""] * 4
        return [_guarded(value.file), value.line, str(value.line_exact).lower(), _guarded(value.function)]
    if value is None:
        return [""]
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, tuple):
        return ["x".join(map(str, value))]
    return [_guarded(str(value)) if isinstance(value, str | Source) else value]


def _guarded(text: str) -> str:
    shown = visible(text)
    return f"'{shown}" if text.lstrip(" ").startswith(_FORMULA_SIGNS) else shown


_NO_RUN = RunSummary(
    request_id="",
    path=None,
    producer="",
    total_ms=0.0,
    trust=Trust(ok=True),
    stages=(),
    steps=(),
    step_statistics=None,
    dominant_stage=None,
)
_NO_RANK = RankReport(
    rank=0,
    path="",
    request_id=None,
    source="",
    event_count=0,
    gpu=None,
    stages=(),
    steps=(),
    categories=(),
    transfers=(),
    kernels=(),
    engaged=EngagedView(attention=None, gemm_dtypes=(), compiled_kernel_share=0.0, graph_replays=0),
)
"""Whose tables are empty: they give the heads where a report has no run or no rank."""
