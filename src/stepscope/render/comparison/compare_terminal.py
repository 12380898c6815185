"""A comparison in a terminal: the verdict first, then what it rests on."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from stepscope.analyse.comparison.compare_results import CompareReport, Comparison, Verdict
from stepscope.render import units
from stepscope.render.comparison import compare_tables as tables
from stepscope.render.names import shorten_kernels, visible
from stepscope.render.tables import Table
from stepscope.render.terminal_grid import Layout, grid

_TOP_KERNELS = 12
_MOST_STEPS = 20
_KERNEL_WIDTH = 52
_STYLES = {
    Verdict.BETTER: "bold green",
    Verdict.WORSE: "bold white on red",
    Verdict.CANNOT_TELL: "bold yellow",
    Verdict.NO_VERDICT: "bold red",
}


def render_compare_terminal(report: CompareReport, *, width: int = 100, colour: bool = False) -> str:
    """The comparison as text of at most ``width`` columns; colour only repeats what words say."""
    parts = [part for each in report.comparisons for part in _comparison(report, each, width)]
    if len(report.comparisons) > 1:
        parts = [grid(tables.files_table(report), Layout(flexible="file"), width), *parts]
    return printed(parts, width=width, colour=colour)


def render_table(table: Table, *, width: int = 100, colour: bool = False) -> str:
    """One table under its caption; its last column wraps where it has to."""
    layout = Layout(flexible=table.columns[-1].key)
    return printed(
        [Text(table.caption, style="bold"), grid(table, layout, width)], width=width, colour=colour
    )


def printed(parts: Sequence[RenderableType], *, width: int, colour: bool) -> str:
    """Parts as text of at most ``width`` columns, with ANSI colours or without."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _comparison(report: CompareReport, comparison: Comparison, width: int) -> Iterator[RenderableType]:
    if len(report.comparisons) > 1:
        yield Text()
        yield Rule(visible(comparison.new.label), align="left", style="dim")
    style = _STYLES.get(comparison.total.verdict, "bold")
    yield Text.assemble(
        (f"{tables.verdict_title(comparison)}:", style), f" {visible(tables.headline(comparison))}"
    )
    yield Text(visible(tables.sides(report, comparison)), style="dim")
    for text in tables.cautions(report, comparison):
        yield Text(f"  note: {visible(text)}")
    for table in (tables.summary_table(comparison), tables.stages_table(comparison)):
        yield from _section(table, width, _ROWS)
    yield from _steps(comparison, width)
    yield from _kernels(comparison, width)
    yield from _section(tables.quality_table(comparison), width, Layout(flexible="note"))
    yield from _section(tables.differences_table(comparison), width, Layout(flexible="new"))


_ROWS = Layout(flexible="reason", optional=("difference", "interval"))


def _section(table: Table, width: int, layout: Layout) -> Iterator[RenderableType]:
    if table.rows:
        yield Text(f"\n{table.caption}", style="bold")
        yield grid(table, layout, width)


def _steps(comparison: Comparison, width: int) -> Iterator[RenderableType]:
    changed = tables.changed_steps_table(comparison)
    yield from _section(changed.head(_MOST_STEPS), width, _ROWS)
    left = max(len(changed.rows) - _MOST_STEPS, 0)
    others = [tables.other_steps(comparison)] if tables.other_steps(comparison) else []
    others += [f"{units.counted(left, 'more changed step')} with --format json"] if left else []
    if others:
        yield Text(f"\nSteps are aligned by index: {', '.join(others)}", style="dim")


def _kernels(comparison: Comparison, width: int) -> Iterator[RenderableType]:
    if comparison.kernels is None:
        return
    yield Text(f"\n{tables.kernels_sentence(comparison)}", style="bold")
    counts = ("base_count", "new_count")
    yield grid(tables.categories_table(comparison), Layout(flexible="name", optional=counts), width)
    top = tables.kernels_table(comparison).head(_TOP_KERNELS)
    yield Text()
    columns = ("name", "state", "base_ms", "new_ms", "difference_ms")
    yield grid(shortened(top, min(_KERNEL_WIDTH, width // 2)).pick(*columns), Layout(flexible="name"), width)
    left = len(comparison.kernels.kernels) - len(top.rows)
    if left > 0:
        yield Text(f"and {units.counted(left, 'more kernel')}, see --format json or html", style="dim")


def shortened(table: Table, width: int) -> Table:
    """A table of kernels whose names fit ``width`` and still differ."""
    names = shorten_kernels([str(row[0]) for row in table.rows], width)
    rows = tuple((name, *row[1:]) for name, row in zip(names, table.rows, strict=True))
    return Table(name=table.name, caption=table.caption, columns=table.columns, rows=rows)
