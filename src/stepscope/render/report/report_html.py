"""The report as one HTML page that opens from a file: no network, no script but its own.

Everything from a trace passes ``visible`` and Jinja's escaping. The page needs no data island: rows and
drawings are in the markup, and the script only sorts, filters and reads out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope import __version__
from stepscope.analyse.results import Finding, RankReport, Report, RunSummary
from stepscope.render import units
from stepscope.render.names import sentence
from stepscope.render.page import PageKind, render_page
from stepscope.render.report import operator_tables, rank_tables, report_tables, run_tables
from stepscope.render.report.answer import (
    Line,
    answer,
    next_commands,
    one_of_several_lines,
    shown_findings,
)
from stepscope.render.report.chart_parts import Chart, Reading
from stepscope.render.report.html_charts import rank_timeline, step_bars
from stepscope.render.report.html_tables import (
    HtmlTable,
    file_link,
    html_table,
    kernel_table,
    operator_table,
    tables_with_rows,
)
from stepscope.render.report.operator_tables import operators_note
from stepscope.render.report.rank_names import rank_name
from stepscope.render.report.run_names import run_heading, run_label
from stepscope.render.report.stage_charts import run_waterfall
from stepscope.render.report.what_ran import model_name

_PAGE = PageKind(template="report.html.jinja", style="report.css", script="report.js")
_KERNEL_ROWS = 100  # over all ranks, so that the page stays small
_FEWEST_KERNEL_ROWS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One run or one rank on the page."""

    id: str
    title: str
    note: str
    charts: tuple[Chart, ...]
    tables: tuple[HtmlTable, ...]
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()  # of a run beside others


def render_html(report: Report) -> str:
    """The whole page as text."""
    return render_page(
        _PAGE,
        version=__version__,
        report=report,
        said=answer(report),
        overview=_overview(report),
        sections=_sections(report),
        commands=next_commands(report),
        recorded=[(path, _recorded(report, path)) for path in report.source],
        cost=_cost,
        readings=_readings,
        file_link=file_link,
    )


def _overview(report: Report) -> tuple[HtmlTable, ...]:
    tables = [html_table(report_tables.gpus_table(report), prefix="all")]
    if len(report.runs) > 1:
        tables.insert(0, html_table(report_tables.runs_table(report), prefix="all"))
    return tables_with_rows(tables)


def _sections(report: Report) -> list[Section]:
    runs = [_run_section(run, f"run{at}", report.runs) for at, run in enumerate(report.runs)]
    limit = max(_KERNEL_ROWS // max(len(report.ranks), 1), _FEWEST_KERNEL_ROWS)
    return runs + [
        _rank_section(rank, f"rank{at}", limit, name=rank_name(rank, report.ranks))
        for at, rank in enumerate(report.ranks)
    ]


_RUN_TABLES = (
    run_tables.run_stages_by_name,
    run_tables.run_steps,
    run_tables.run_outside,
    run_tables.run_facts,
)


def _run_section(run: RunSummary, prefix: str, runs: Sequence[RunSummary]) -> Section:
    charts = (run_waterfall(run, prefix), step_bars(run.steps, run.step_statistics, prefix))
    tables = [make(run) for make in _RUN_TABLES]
    return Section(
        id=prefix,
        title=_run_title(run, runs),
        lines=tuple(one_of_several_lines(run)) if len(runs) > 1 else (),
        note=f"{sentence(run.producer, 60)}: {sentence(run.path or '', 200)}",
        charts=tuple(chart for chart in charts if chart is not None),
        tables=tables_with_rows([html_table(table, prefix=prefix) for table in tables]),
        findings=tuple(shown_findings(run.findings)),
        warnings=run.warnings,
    )


def _run_title(run: RunSummary, runs: Sequence[RunSummary]) -> str:
    """What was run, as far as that is known: an id alone tells nobody anything."""
    name, model = sentence(run_label(run, runs), 60), model_name(run)
    return sentence(run_heading(run, runs), 60) if model is None else f"Run of {sentence(model, 80)} ({name})"


def _rank_section(rank: RankReport, prefix: str, kernel_rows: int, *, name: str) -> Section:
    charts = (rank_timeline(rank, prefix), step_bars(rank.steps, rank.step_statistics, prefix))
    tables = [
        html_table(rank_tables.rank_stages_by_name(rank), prefix=prefix),
        html_table(rank_tables.rank_steps(rank), prefix=prefix),
        html_table(rank_tables.rank_categories(rank), prefix=prefix),
        kernel_table(rank, prefix=prefix, limit=kernel_rows),
        html_table(operator_tables.rank_operator_categories(rank), prefix=prefix),
        operator_table(rank, prefix=prefix, limit=kernel_rows),
        html_table(operator_tables.rank_lines(rank), prefix=prefix, limit=kernel_rows),
        html_table(operator_tables.rank_modules(rank), prefix=prefix, limit=kernel_rows),
        html_table(rank_tables.rank_transfers(rank), prefix=prefix, limit=100),
        html_table(rank_tables.rank_idle(rank), prefix=prefix),
        html_table(rank_tables.rank_annotations(rank), prefix=prefix, limit=100),
    ]
    kernels = units.counted(rank.gpu.kernel_count, "kernel") if rank.gpu else "no GPU events"
    if rank.operators:
        kernels += f"; operators by {operators_note(rank.operators)}"
    if rank.attributed_share is not None:
        kernels += f"; {units.share(rank.attributed_share)} with a source line"
    return Section(
        id=prefix,
        title=f"Trace of {name}",
        note=f"{sentence(rank.path, 200)} ({sentence(rank.source, 60)}): "
        f"{units.counted(rank.event_count, 'event')}, {kernels}",
        charts=tuple(chart for chart in charts if chart is not None),
        tables=tables_with_rows(tables),
        findings=tuple(shown_findings(rank.findings)),
    )


def _recorded(report: Report, path: str) -> str:
    rank = next((rank for rank in report.ranks if rank.path == path), None)
    return "" if rank is None else f"{rank.source}, {units.counted(rank.event_count, 'event')}"


def _cost(finding: Finding) -> str:
    return "cost not known" if finding.cost_ms is None else f"costs {units.duration(finding.cost_ms)}"


def _readings(readings: Sequence[Reading]) -> str:
    """What the script reads: place and text, with bars between."""
    return "|".join(f"{reading.at:g} {reading.text.replace('|', '/')}" for reading in readings)
