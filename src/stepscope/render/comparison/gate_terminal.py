"""A gate in a terminal or as Markdown: the answer, then a table of checks for each run."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from stepscope.analyse.comparison.gate_results import GateReport
from stepscope.render.comparison import gate_tables as tables
from stepscope.render.comparison.compare_markdown import markdown_table
from stepscope.render.comparison.compare_terminal import printed
from stepscope.render.names import visible
from stepscope.render.report.report_markdown import prose
from stepscope.render.terminal_grid import Layout, grid


def render_gate_terminal(report: GateReport, *, width: int = 100, colour: bool = False) -> str:
    """The gate as text of at most ``width`` columns; colour only repeats what words say."""
    style = "bold green" if report.passed else "bold white on red"
    parts: list[RenderableType] = [Text(visible(tables.headline(report)), style=style)]
    for result in report.results:
        table = tables.checks_table(result)
        parts += [Text(f"\n{visible(table.caption)}", style="bold")]
        parts += [grid(table, Layout(flexible="detail"), width)]
    return printed(parts, width=width, colour=colour)


def render_gate_markdown(report: GateReport) -> str:
    """The gate as GitHub-flavoured Markdown for a job summary or a pull request."""
    lines = [f"### stepscope gate: {prose(tables.headline(report))}", ""]
    for result in report.results:
        table = tables.checks_table(result)
        lines += [f"**{prose(table.caption)}**", "", *markdown_table(table), ""]
    return "\n".join(lines).rstrip("\n") + "\n"
