"""Tables as the HTML page shows them: cells with what they sort by, and what is folded away behind a name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import quote

from stepscope.analyse.results import KernelRow, RankReport, Source
from stepscope.render import units
from stepscope.render.names import sentence, shorten, shorten_apart, shorten_kernels, shorten_path, visible
from stepscope.render.report import operator_tables, rank_tables
from stepscope.render.tables import Column, Kind, Table, Value, cell_text

_KERNEL_WIDTH = 50
_LONGEST_NAME = 700
_LONGEST_PATH = 1500
_SOURCE_WIDTH = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: what is read, what it sorts by, and what opens below it."""

    text: str
    sort: str
    numeric: bool = False
    css: str = ""
    code: bool = False
    href: str | None = None
    title: str = ""  # the whole of a text that was shortened
    bar: float | None = None  # 0 to 100
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlTable:
    """A table ready for the template."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int = 0
    choices: tuple[str, ...] = field(default=())  # values of the category column, to filter by


def html_table(table: Table, *, prefix: str, limit: int = 500) -> HtmlTable:
    """``table`` with at most ``limit`` rows; ``prefix`` keeps ids of several runs and ranks apart."""
    shown = table.head(limit).without_empty_columns()
    rows = tuple(
        tuple(_cell(column, value) for column, value in zip(shown.columns, row, strict=True))
        for row in shown.rows
    )
    return HtmlTable(
        id=f"{prefix}-{table.name}",
        caption=table.caption,
        columns=shown.columns,
        rows=rows,
        left_out=len(table.rows) - len(shown.rows),
    )


def kernel_table(rank: RankReport, *, prefix: str, limit: int) -> HtmlTable:
    """The kernels, each with its whole name, launch geometry and ncu command folded behind its short name."""
    table = rank_tables.rank_kernels(rank).pick(
        "name", "category", "total_ms", "share", "count", "mean_us", "source"
    )
    return _work_table(table, rank.kernels, prefix=prefix, limit=limit)


def operator_table(rank: RankReport, *, prefix: str, limit: int) -> HtmlTable:
    """The operators as the kernels are shown."""
    table = operator_tables.rank_operators(rank).pick(
        "name", "category", "self_ms", "share", "count", "mean_us", "source"
    )
    return _work_table(table, rank.operators.rows if rank.operators else (), prefix=prefix, limit=limit)


def _work_table(table: Table, work: Sequence[KernelRow], *, prefix: str, limit: int) -> HtmlTable:
    plain = html_table(table, prefix=prefix, limit=limit)
    shown = work[: len(plain.rows)]
    shortened = shorten_kernels if table.name == "kernels" else shorten_apart
    names = shortened([visible(row.name) for row in shown], _KERNEL_WIDTH)
    rows = tuple(
        (_kernel_cell(name, row), *cells[1:])
        for name, row, cells in zip(names, shown, plain.rows, strict=True)
    )
    return replace(plain, rows=rows, choices=tuple(dict.fromkeys(visible(row.category) for row in shown)))


def _kernel_cell(name: str, row: KernelRow) -> Cell:
    more = [("whole name", shorten(visible(row.name), _LONGEST_NAME))]
    if row.operator:
        more.append(("operator", sentence(row.operator)))
    if row.stages:
        more.append(("stages", sentence(", ".join(row.stages))))
    if row.source and row.source.module_path:
        more.append(("module", sentence(row.source.module_path)))
    if row.grid or row.block:
        more.append(("grid, block", f"{units.dimensions(row.grid)}, {units.dimensions(row.block)}"))
    if row.registers is not None:
        more.append(("registers a thread", units.count(row.registers)))
    if row.shared_bytes is not None:
        more.append(("shared memory a block", units.size(row.shared_bytes)))
    if row.occupancy is not None:
        more.append(("occupancy", units.share(row.occupancy)))
    if row.ncu_command:
        more.append(("look closer", sentence(row.ncu_command, 1000)))
    return Cell(text=name, sort=name.lower(), css="kernel", code=True, more=tuple(more))


def _cell(column: Column, value: Value) -> Cell:
    text = cell_text(column.kind, value)
    if column.kind is Kind.SOURCE:
        return _source_cell(value if isinstance(value, Source) else None)
    if column.kind.numeric:
        number = value if isinstance(value, int | float) else None
        css = "number" if column.kind is not Kind.SHARE else "number with-bar"
        bar = units.clamped(number) * 100 if column.kind is Kind.SHARE and number is not None else None
        return Cell(text=text, sort=_sort_key(number), numeric=True, css=css, bar=bar)
    short = sentence(text)
    return Cell(text=short, sort=short.lower(), code=column.kind is Kind.CODE)


def _sort_key(number: float | None) -> str:
    """What the script compares: whole numbers exactly, others to eight digits, nothing for nothing."""
    if number is None or not math.isfinite(number):
        return ""
    return str(number) if isinstance(number, int) else f"{number:.8g}"


def _source_cell(source: Source | None) -> Cell:
    if source is None:
        return Cell(text="", sort="")
    text = cell_text(Kind.SOURCE, source)
    short = shorten_path(text, _SOURCE_WIDTH)
    place = f"{visible(source.file)}:{source.line:09d}".lower()
    title = "" if short == text else sentence(text)
    return Cell(
        text=short,
        sort=shorten(place, 400),
        css="source",
        code=True,
        href=file_link(source),
        title=title,
    )


def file_link(source: Source) -> str | None:
    """A file: address for an absolute path, None for any other: nothing else may become an address."""
    path = source.file
    if len(path) > _LONGEST_PATH or not path.isprintable():
        return None
    if PurePosixPath(path).is_absolute() and not path.startswith("//"):
        return f"file://{quote(path)}"
    windows = PureWindowsPath(path)
    if windows.is_absolute() and len(windows.drive) == 2:
        return f"file:///{quote(windows.as_posix(), safe='/:')}"
    return None


def tables_with_rows(tables: Sequence[HtmlTable]) -> tuple[HtmlTable, ...]:
    """Only those that say something."""
    return tuple(table for table in tables if table.rows)
