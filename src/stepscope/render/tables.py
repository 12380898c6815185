"""What every view shows, as tables of raw values: built once, formatted by each view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from stepscope.analyse.results import Source
from stepscope.render import units
from stepscope.render.names import visible

Value = str | int | float | bool | Source | tuple[int, ...] | None


class Kind(Enum):
    """What a column holds, and so how it is written and on which side it is aligned."""

    TEXT = "text"
    CODE = "code"  # a name from the trace: kernel, operator, path
    SOURCE = "source"
    COUNT = "count"
    INDEX = "index"  # a number that is a name: no thousands separators
    MS = "ms"
    US = "us"
    SHARE = "share"
    RATIO = "ratio"
    BYTES = "bytes"
    NUMBER = "number"
    FLAG = "flag"
    MARK = "mark"  # a flag that is only worth a word where it is set
    DIMENSIONS = "dimensions"
    AMOUNT = "amount"  # a number written with its unit already: aligned right

    @property
    def numeric(self) -> bool:
        """Whether cells are numbers: aligned right, sorted largest first."""
        return self not in {Kind.TEXT, Kind.CODE, Kind.SOURCE, Kind.FLAG, Kind.MARK, Kind.DIMENSIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. ``key`` is its name in CSV and names the unit; ``title`` is what people read."""

    key: str
    title: str
    kind: Kind = Kind.TEXT
    always: bool = False  # shown even where nothing in it is known: one side of a comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of raw values under their columns."""

    name: str  # stable: the CSV table's name and the HTML id
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def pick(self, *keys: str) -> Table:
        """The same table with these columns only, in this order."""
        at = {column.key: index for index, column in enumerate(self.columns)}
        chosen = [at[key] for key in keys]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in chosen),
            rows=tuple(tuple(row[index] for index in chosen) for row in self.rows),
        )

    def without_empty_columns(self) -> Table:
        """The same table without columns in which nothing is known."""
        full = [
            column.key
            for index, column in enumerate(self.columns)
            if column.always
            or any(cell_text(column.kind, row[index]) not in ("", units.NOT_KNOWN) for row in self.rows)
        ]
        return self.pick(*full)

    def head(self, limit: int) -> Table:
        """The first ``limit`` rows."""
        return replace(self, rows=self.rows[:limit])

    def rows_at(self, indices: Sequence[int]) -> Table:
        """The rows at these positions."""
        return replace(self, rows=tuple(self.rows[index] for index in indices))


def build(
    name: str,
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[tuple[Value, ...]],
) -> Table:
    """A table from any iterables."""
    return Table(name=name, caption=caption, columns=tuple(columns), rows=tuple(rows))


def source_text(source: Source | None) -> str:
    """``file:line function``; a definition's line is marked, because it is not the line that called."""
    if source is None:
        return ""
    place = f"{source.file}:{source.line}" if source.line_exact else f"{source.file}:{source.line} (def)"
    return visible(f"{place} {source.function}")


def cell_text(kind: Kind, value: Value) -> str:
    """A cell as people read it."""
    if value is None:
        return "" if kind in {Kind.TEXT, Kind.CODE, Kind.SOURCE} else units.NOT_KNOWN
    return _FORMATS[kind](value)


def _text(value: Value) -> str:
    return visible(str(value))


def _index(value: Value) -> str:
    return str(value)


def _mark(value: Value) -> str:
    return "yes" if value else ""


_FORMATS: dict[Kind, Callable[..., str]] = {
    Kind.TEXT: _text,
    Kind.CODE: _text,
    Kind.SOURCE: source_text,
    Kind.COUNT: units.count,
    Kind.INDEX: _index,
    Kind.MS: units.milliseconds,
    Kind.US: units.microseconds,
    Kind.SHARE: units.share,
    Kind.RATIO: units.ratio,
    Kind.BYTES: units.size,
    Kind.NUMBER: units.number,
    Kind.FLAG: units.yes_no,
    Kind.MARK: _mark,
    Kind.DIMENSIONS: units.dimensions,
    Kind.AMOUNT: _text,
}
