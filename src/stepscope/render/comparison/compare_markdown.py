"""A comparison as Markdown for a pull request: the verdict and the stages in sight, the rest folded away."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.analyse.comparison.compare_results import CompareReport, Comparison
from stepscope.render import units
from stepscope.render.comparison import compare_tables as tables
from stepscope.render.comparison.compare_terminal import shortened
from stepscope.render.report.report_markdown import code, prose
from stepscope.render.tables import Kind, Table, cell_text

_MOST_ROWS = 60
_KERNEL_WIDTH = 80


def render_compare_markdown(report: CompareReport) -> str:
    """The comparison as GitHub-flavoured Markdown, ending in a line feed."""
    lines: list[str] = []
    if len(report.comparisons) > 1:
        lines += ["### stepscope compare", "", *markdown_table(tables.files_table(report)), ""]
    for comparison in report.comparisons:
        lines += _comparison(report, comparison)
    return "\n".join(lines).rstrip("\n") + "\n"


def markdown_table(table: Table, limit: int = _MOST_ROWS) -> Iterator[str]:
    """A table as Markdown lines, text from files escaped; nothing where it has no rows."""
    if not table.rows:
        return
    shown = table.head(limit).without_empty_columns()
    yield "| " + " | ".join(prose(column.title) for column in shown.columns) + " |"
    yield "| " + " | ".join("---:" if column.kind.numeric else "---" for column in shown.columns) + " |"
    for row in shown.rows:
        cells = [
            code(cell_text(column.kind, value))
            if column.kind is Kind.CODE
            else prose(cell_text(column.kind, value))
            for column, value in zip(shown.columns, row, strict=True)
        ]
        yield "| " + " | ".join(cells) + " |"
    left = len(table.rows) - len(shown.rows)
    if left > 0:
        yield ""
        yield f"{units.counted(left, 'more row')} in the JSON"


def _comparison(report: CompareReport, comparison: Comparison) -> Iterator[str]:
    heading = f"{tables.verdict_title(comparison).lower()}: {tables.headline(comparison)}"
    yield f"### stepscope compare: {prose(heading)}"
    yield ""
    yield prose(tables.sides(report, comparison))
    yield ""
    for text in tables.cautions(report, comparison):
        yield f"- {prose(text)}"
    yield ""
    yield from markdown_table(tables.summary_table(comparison))
    yield ""
    yield "**Stages**"
    yield ""
    yield from markdown_table(tables.stages_table(comparison))
    yield ""
    if comparison.quality:
        yield "**Outputs**"
        yield ""
        yield from markdown_table(tables.quality_table(comparison))
        yield ""
    yield from _folded(tables.steps_table(comparison))
    if comparison.kernels is not None:
        yield prose(tables.kernels_sentence(comparison))
        yield ""
        yield from _folded(tables.categories_table(comparison))
        yield from _folded(shortened(tables.kernels_table(comparison).head(_MOST_ROWS), _KERNEL_WIDTH))
    yield from _folded(tables.differences_table(comparison))


def _folded(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    yield f"<details><summary>{prose(table.caption)} ({len(table.rows)})</summary>"
    yield ""
    yield from markdown_table(table)
    yield ""
    yield "</details>"
    yield ""
