"""The tables of a trace without GPU work: its operators as kernels are shown, their lines and modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepscope.analyse.results import OperatorTime, PlaceRow, RankReport
from stepscope.render import units
from stepscope.render.names import visible
from stepscope.render.report import rank_tables
from stepscope.render.tables import Column, Kind, Table, build

_SELF = Column(key="self_ms", title="self ms", kind=Kind.MS)
_PLACES = (
    _SELF,
    Column(key="share", title="share", kind=Kind.SHARE),
    Column(key="count", title="operators", kind=Kind.COUNT),
    Column(key="category", title="category"),
    Column(key="operator", title="most of it", kind=Kind.CODE),
)
_LINES = (
    Column(key="source", title="line", kind=Kind.SOURCE),
    Column(key="module", title="module", kind=Kind.CODE),
    *_PLACES,
)
_MODULES = (Column(key="module", title="module", kind=Kind.CODE), *_PLACES)
_TITLES = {
    "name": Column(key="name", title="operator", kind=Kind.CODE),
    "total_ms": _SELF,
    "module": Column(key="module", title="module", kind=Kind.CODE),
}


def rank_operators(rank: RankReport) -> Table:
    """Every operator, all its calls together: the table of kernels with self time."""
    found = rank.operators
    kept = ("name", "category", "total_ms", "share", "count", "mean_us", "source", "stages")
    table = rank_tables.rank_kernels(replace(rank, kernels=found.rows if found else ())).pick(*kept)
    columns = (*(_TITLES.get(column.key, column) for column in table.columns), _TITLES["module"])
    modules = [row.source.module_path if row.source else None for row in found.rows] if found else []
    rows = [(*row, module) for row, module in zip(table.rows, modules, strict=True)]
    return build("operators", "Operators by self time", columns, rows)


def rank_operator_categories(rank: RankReport) -> Table:
    """The operators' self time by what they do, and the Python between them."""
    found = rank.operators
    table = rank_tables.rank_categories(replace(rank, categories=found.categories if found else ()))
    columns = tuple(
        {"count": replace(column, title="operators"), "total_ms": _SELF}.get(column.key, column)
        for column in table.columns[:4]
    )
    rows = [row[:4] for row in table.rows]
    if found:
        rows.append(("Python between operators", between_ms(found), between_share(found), None))
    return build("operator_categories", "Time by operator category", columns, rows)


def rank_lines(rank: RankReport) -> Table:
    """Lines of Python by the self time of the operators that they called."""
    rows = ((row.source, module_text(row), *_numbers(row)) for row in _places(rank, "lines"))
    return build("lines", "Lines of Python by operators' self time", _LINES, rows)


def rank_modules(rank: RankReport) -> Table:
    """Modules by the self time of the operators that their own code called."""
    rows = ((row.module, *_numbers(row)) for row in _places(rank, "modules"))
    return build("modules", "Modules by operators' self time", _MODULES, rows)


def between_ms(found: OperatorTime) -> float:
    """What of the traced time is in no operator: Python, and waits."""
    return max(found.traced_ms - found.inside_ms, 0.0)


def between_share(found: OperatorTime) -> float:
    return between_ms(found) / found.traced_ms if found.traced_ms else 0.0


def operators_note(found: OperatorTime) -> str:
    """What the shares are of, in a few words."""
    return (
        f"self time, share of {found.basis} ({units.duration(found.traced_ms)}); "
        f"{units.share(between_share(found))} is Python between operators"
    )


def place_detail(row: PlaceRow) -> str:
    """What its operators do, and in which most of the time is."""
    return f"{visible(row.category)} · most in {visible(row.operator)}"


def module_text(row: PlaceRow) -> str:
    """The module of a line, and how many more run through it."""
    more = f" and {row.module_count - 1:,} more" if row.module_count > 1 else ""
    return visible(row.module or "") + more


def _places(rank: RankReport, which: str) -> Sequence[PlaceRow]:
    if rank.operators is None:
        return ()
    return rank.operators.lines if which == "lines" else rank.operators.modules


def _numbers(row: PlaceRow) -> tuple[float, float, int, str, str]:
    return row.total_ms, row.share, row.count, row.category, row.operator
