"""HTML pages that open offline: the template loader, and tables ready for a template."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stepscope.render.names import visible
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
    """A template of ``render/templates`` with every value escaped; a value it lacks is an error.

    The page's policy admits its own style by hash and nothing else: no script, nothing loaded or sent.
    """
    css = files("stepscope.render").joinpath("templates/page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    environment = Environment(
        loader=PackageLoader("stepscope.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    page = environment.get_template(template)
    return page.render(policy=policy, css=Markup(css), **values) + "\n"  # noqa: S704 (our own file)


def _finalize(value: Any) -> Any:
    """Text is made visible before it is written; markup is our own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


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
