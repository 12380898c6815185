"""A table of raw values laid out for a terminal of a given width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text

from stepscope.render import units
from stepscope.render.names import shorten, shorten_apart, shorten_path
from stepscope.render.tables import Kind, Table, cell_text

_GAP = 2
_BAR_CELLS = 16
_PARTS_OF_A_CELL = "▏▎▍▌▋▊▉█"
_SPARK = "▁▂▃▄▅▆▇█"
_NARROWEST_FLEXIBLE = 22
_READABLE_NAME = 24
"""Names are shortened to this before an optional column goes: every stage name of ours is whole in it."""
_SHORTEST_NAME = 12
_MOST_WRAPPED = 600
"""Cells of a text that wraps: a sentence is whole in it, and a stage may be called by a whole prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table gives way where it is too wide.

    ``flexible`` names the column that wraps in what is left; ``optional`` columns go first, in this order.
    """

    flexible: str = ""
    optional: tuple[str, ...] = ()


def grid(table: Table, layout: Layout, width: int, shares: Sequence[float] = ()) -> Grid:
    """``table`` as a rich grid, with a bar at the end of each row where ``shares`` are given.

    A name gives way before a figure does: too long for its row, it loses its middle.
    """
    table, texts, gap = _fitting(table.without_empty_columns(), layout, width - (_BAR_CELLS if shares else 0))
    result = empty_grid(gap)
    for at, column in enumerate(table.columns):
        wraps = column.key == layout.flexible
        result.add_column(
            Text(column.title),
            justify="right" if column.kind.numeric else "left",
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
            min_width=None if wraps else min(_width(table, texts, at), width),
        )
    if shares:
        result.add_column(Text(""), no_wrap=True, width=_BAR_CELLS)
    room = width - _fixed(table, texts, layout, gap)
    for index, row in enumerate(texts):
        cells = [
            Text(_cut(text, column.kind, room) if column.key == layout.flexible else text)
            for text, column in zip(row, table.columns, strict=True)
        ]
        result.add_row(*cells, *([Text(bar(shares[index]), style="cyan")] if shares else []))
    return result


def empty_grid(gap: int = _GAP) -> Grid:
    """The look of every table: no frame, bold heads, ``gap`` cells between columns."""
    return Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")


def _texts(table: Table, layout: Layout) -> list[list[str]]:
    return [
        [
            shorten(cell_text(column.kind, value), 40)
            if column.kind is Kind.CODE and column.key != layout.flexible
            else cell_text(column.kind, value)
            for column, value in zip(table.columns, row, strict=True)
        ]
        for row in table.rows
    ]


def _width(table: Table, texts: list[list[str]], at: int) -> int:
    return max([cell_len(table.columns[at].title), *(cell_len(row[at]) for row in texts)])


def _fixed(table: Table, texts: list[list[str]], layout: Layout, gap: int) -> int:
    """Cells that all but the flexible column take."""
    return sum(
        _width(table, texts, at) + gap
        for at, column in enumerate(table.columns)
        if column.key != layout.flexible
    )


def _cut(text: str, kind: Kind, room: int) -> str:
    """A source keeps its end, which tells the line; anything else wraps, but fills no screen."""
    if kind is Kind.SOURCE:
        return shorten_path(text, max(room, _NARROWEST_FLEXIBLE))
    return shorten(text, _MOST_WRAPPED)


def _fitting(table: Table, layout: Layout, width: int) -> tuple[Table, list[list[str]], int]:
    """The table, its texts and the gap between columns with which it fits, as far as it can.

    First names give way down to a readable length, then the optional columns one after the other, then
    names as far as they can and the gap.
    """
    for gone in range(len(layout.optional) + 1):
        kept = table.pick(*(c.key for c in table.columns if c.key not in layout.optional[:gone]))
        whole = _texts(kept, layout)
        needed = min(_longest(kept, whole, layout), _NARROWEST_FLEXIBLE)
        texts = _with_short_names(kept, whole, layout, width - needed, least=_READABLE_NAME)
        if _fixed(kept, texts, layout, _GAP) + needed <= width:
            return kept, texts, _GAP
    needed = min(_longest_word(kept, whole, layout), _NARROWEST_FLEXIBLE)
    for gap in (_GAP, 1):
        texts = _with_short_names(kept, whole, layout, width - needed, least=_SHORTEST_NAME, gap=gap)
        if _fixed(kept, texts, layout, gap) + needed <= width:
            return kept, texts, gap
    return kept, texts, 1


def _with_short_names(
    table: Table, texts: list[list[str]], layout: Layout, room: int, *, least: int, gap: int = _GAP
) -> list[list[str]]:
    """``texts`` with the longest of the columns that hold no figures shortened until they take ``room``.

    No column becomes narrower than ``least`` cells.
    """
    found = {
        at: _width(table, texts, at)
        for at, column in enumerate(table.columns)
        if not column.kind.numeric and column.key != layout.flexible
    }
    others = _fixed(table, texts, layout, gap) - sum(found.values())
    cap = min(max(found.values(), default=0), max(room, least))
    while cap > least and others + sum(min(cells, cap) for cells in found.values()) > room:
        cap -= 1
    columns = [list(column) for column in zip(*texts, strict=True)]
    for at, cells in found.items():
        if cells > cap and columns:
            columns[at] = shorten_apart(columns[at], cap)
    return [list(row) for row in zip(*columns, strict=True)]


def _flexible(table: Table, texts: list[list[str]], layout: Layout) -> list[str]:
    """Everything that stands in the flexible column, its title too; nothing where there is none."""
    at = next((at for at, column in enumerate(table.columns) if column.key == layout.flexible), None)
    return [] if at is None else [table.columns[at].title, *(row[at] for row in texts)]


def _longest(table: Table, texts: list[list[str]], layout: Layout) -> int:
    return max(map(cell_len, _flexible(table, texts, layout)), default=0)


def _longest_word(table: Table, texts: list[list[str]], layout: Layout) -> int:
    words = (word for text in _flexible(table, texts, layout) for word in text.split())
    return max(map(cell_len, words), default=0)


def bar(share: float) -> str:
    """A share of 0 to 1 as a bar, to an eighth of a cell."""
    eighths = round(units.clamped(share) * _BAR_CELLS * 8)
    whole, part = divmod(max(eighths, 1 if share > 0 else 0), 8)
    return _PARTS_OF_A_CELL[-1] * whole + (_PARTS_OF_A_CELL[part - 1] if part else "")


def spark(values_ms: Sequence[float]) -> str:
    """Durations as columns from zero up to the longest."""
    longest = max(values_ms, default=0.0)
    if not units.drawable(*values_ms) or longest <= 0:
        return ""
    top = len(_SPARK) - 1
    return "".join(_SPARK[round(max(value, 0.0) / longest * top)] for value in values_ms)
