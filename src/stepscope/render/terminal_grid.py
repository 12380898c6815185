"""A table of raw values laid out for a terminal of a given width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text

from stepscope.render import units
from stepscope.render.names import shorten, shorten_path
from stepscope.render.tables import Kind, Table, cell_text

_GAP = 2
_BAR_CELLS = 16
_PARTS_OF_A_CELL = "▏▎▍▌▋▊▉█"
_SPARK = "▁▂▃▄▅▆▇█"
_NARROWEST_FLEXIBLE = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table gives way where it is too wide.

    ``flexible`` names the column that wraps in what is left; ``optional`` columns go first, in this order.
    """

    flexible: str = ""
    optional: tuple[str, ...] = ()


def grid(table: Table, layout: Layout, width: int, shares: Sequence[float] = ()) -> Grid:
    """``table`` as a rich grid, with a bar at the end of each row where ``shares`` are given."""
    table = _fitting(table.without_empty_columns(), layout, width - (_BAR_CELLS if shares else 0))
    result = empty_grid()
    texts = _texts(table, layout)
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
    room = _room(table, texts, layout, width)
    for index, row in enumerate(texts):
        cells = [
            Text(_cut(text, column.kind, room) if column.key == layout.flexible else text)
            for text, column in zip(row, table.columns, strict=True)
        ]
        result.add_row(*cells, *([Text(bar(shares[index]), style="cyan")] if shares else []))
    return result


def empty_grid() -> Grid:
    """The look of every table: no frame, bold heads."""
    return Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")


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


def _room(table: Table, texts: list[list[str]], layout: Layout, width: int) -> int:
    """Cells that are left for the flexible column."""
    fixed = sum(
        _width(table, texts, at) + _GAP
        for at, column in enumerate(table.columns)
        if column.key != layout.flexible
    )
    return width - fixed


def _cut(text: str, kind: Kind, room: int) -> str:
    """A source keeps its end, which tells the line; anything else wraps."""
    return shorten_path(text, max(room, _NARROWEST_FLEXIBLE)) if kind is Kind.SOURCE else text


def _fitting(table: Table, layout: Layout, width: int) -> Table:
    """``table`` without as many of the optional columns as it takes to fit."""
    for gone in range(len(layout.optional) + 1):
        dropped = layout.optional[:gone]
        kept = table.pick(*(column.key for column in table.columns if column.key not in dropped))
        needed = 0
        if layout.flexible:
            texts = _texts(kept, layout)
            longest = max(
                (
                    _width(kept, texts, at)
                    for at, column in enumerate(kept.columns)
                    if column.key == layout.flexible
                ),
                default=0,
            )
            needed = min(longest, _NARROWEST_FLEXIBLE)
        if _room(kept, _texts(kept, layout), layout, width) >= needed:
            return kept
    return kept


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
