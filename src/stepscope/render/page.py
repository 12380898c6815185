"""HTML pages that open offline: the template loader, and tables ready for a template."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from stepscope.render.tables import Table, cell_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell as text; the template escapes it."""

    text: str
    kind: str
    numeric: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table for a template: columns without any value are gone."""

    anchor: str
    caption: str
    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]


def render_page(template: str, **values: object) -> str:
    """A template of ``render/templates`` with every value escaped; a value it lacks is an error."""
    environment = Environment(
        loader=PackageLoader("stepscope.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def page_table(table: Table, anchor: str = "") -> PageTable:
    """A table's cells as people read them."""
    shown = table.without_empty_columns()
    return PageTable(
        anchor=anchor or table.name,
        caption=shown.caption,
        head=tuple(
            Cell(text=column.title, kind="head", numeric=column.kind.numeric) for column in shown.columns
        ),
        rows=tuple(
            tuple(
                Cell(text=cell_text(column.kind, value), kind=column.kind.value, numeric=column.kind.numeric)
                for column, value in zip(shown.columns, row, strict=True)
            )
            for row in shown.rows
        ),
    )
