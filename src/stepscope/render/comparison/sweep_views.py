"""A sweep in a terminal, as Markdown, JSON and as a page with its curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from rich.console import RenderableType
from rich.text import Text

from stepscope.analyse.comparison.sweep_results import SCALING_SCHEMA_VERSION, Fit, SweepReport
from stepscope.render.comparison import sweep_tables as tables
from stepscope.render.comparison.compare_markdown import markdown_table
from stepscope.render.comparison.compare_terminal import printed
from stepscope.render.comparison.svg_chart import Series, log_chart
from stepscope.render.json_text import json_schema, json_text
from stepscope.render.names import visible
from stepscope.render.page import PageKind, page_table, render_page
from stepscope.render.report.report_markdown import prose
from stepscope.render.tables import Table
from stepscope.render.terminal_grid import Layout, grid

_CURVES_AT_MOST = 8


def render_sweep_terminal(report: SweepReport, *, width: int = 100, colour: bool = False) -> str:
    """The sweep as text of at most ``width`` columns."""
    parts: list[RenderableType] = [Text(tables.headline(report), style="bold")]
    parts += [Text(f"  note: {visible(text)}") for text in (*report.warnings, *report.crossovers_withheld)]
    parts += [Text(f"  not measured: {visible(text)}") for text in tables.accidents(report)]
    for table in _tables(report):
        said_above = table.pick(*(column.key for column in table.columns if column.key != "error"))
        shown = said_above.without_empty_columns()
        layout = Layout(flexible=shown.columns[-1].key, optional=("peak", "longest", "count", "residual"))
        parts += [Text(f"\n{shown.caption}", style="bold"), grid(shown, layout, width)]
    return printed(parts, width=width, colour=colour)


def render_sweep_markdown(report: SweepReport) -> str:
    """The sweep as GitHub-flavoured Markdown."""
    lines = [f"### stepscope sweep: {prose(tables.headline(report))}", ""]
    lines += [f"- {prose(text)}" for text in (*report.warnings, *report.crossovers_withheld)]
    for table in _tables(report):
        lines += ["", f"**{prose(table.caption)}**", "", *markdown_table(table, limit=200)]
    return "\n".join(lines) + "\n"


def render_sweep_json(report: SweepReport) -> str:
    """The sweep as JSON with the names of ``sweep_schema``, ending in a line feed."""
    return json_text(report)


def sweep_schema() -> dict[str, Any]:
    """The JSON Schema of ``render_sweep_json``'s output, made from the types themselves."""
    return json_schema(SweepReport, f"stepscope sweep, schema version {SCALING_SCHEMA_VERSION}")


def render_sweep_html(report: SweepReport) -> str:
    """The sweep as a page that opens offline, its curves as inline SVG."""
    return render_page(
        PageKind(template="sweep.html.jinja"),
        title=f"stepscope sweep: {tables.headline(report)}",
        headline=tables.headline(report),
        warnings=report.warnings,
        growth=tables.growth(report),
        charts=_charts(report),
        tables=[page_table(table) for table in _tables(report)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chart:
    title: str
    svg: Markup


def _charts(report: SweepReport) -> list[_Chart]:
    charts = []
    for group, against in dict.fromkeys((fit.group, fit.against) for fit in report.fits):
        fits = [fit for fit in report.fits if (fit.group, fit.against) == (group, against)]
        series = [_series(fit) for fit in fits[:_CURVES_AT_MOST]]
        svg = log_chart(series, x_title=against, y_title="ms")
        charts.append(_Chart(title=f"Time against {against}, {group}", svg=svg))
    return charts


def _series(fit: Fit) -> Series:
    xs = [point.x for point in fit.points]
    ends = (min(xs), max(xs))
    return Series(
        name=f"{fit.series} (^{fit.exponent:.2f})",
        points=[(point.x, point.ms) for point in fit.points],
        line=[(x, fit.coefficient * x**fit.exponent) for x in ends],
    )


def _tables(report: SweepReport) -> list[Table]:
    found = (
        tables.points_table(report),
        tables.fits_table(report),
        tables.compositions_table(report),
        tables.crossovers_table(report),
        tables.first_uses_table(report),
    )
    return [table for table in found if table.rows]
