"""HTML pages that open offline: policy, escaping and templates in one place, and tables for templates."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stepscope.render.names import sentence, visible
from stepscope.render.tables import Table, cell_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell as text; the template escapes it."""

    text: str
    kind: str
    numeric: bool
    column: str  # the column's key


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table for a template: columns without any value are gone."""

    anchor: str
    caption: str
    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKind:
    """A template of ``render/templates`` with its style and, where it has one, its script."""

    template: str
    style: str = "page.css"
    script: str | None = None


def render_page(kind: PageKind, **values: object) -> str:
    """The page with every value made visible and escaped; a value that the template lacks is an error.

    Its policy admits its own style and script by hash and nothing else: nothing is fetched, framed or sent.
    The template finds ``policy``, ``css`` and ``script`` (for ``page_head.html.jinja``).
    """
    css, script = _asset(kind.style), _asset(kind.script) if kind.script else ""
    page = _environment().get_template(kind.template)
    text = page.render(
        policy=_policy(css, script),
        css=Markup(css),  # noqa: S704 (our own file)
        script=Markup(script),  # noqa: S704 (our own file)
        **values,
    )
    return text + "\n"


def _policy(css: str, script: str) -> str:
    """Only this very style and script may run, and the empty icon is all that is loaded."""
    scripts = f"script-src '{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; style-src '{_hash(css)}'; {scripts}img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return files("stepscope.render").joinpath(f"templates/{name}").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("stepscope.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["sentence"] = sentence
    return environment


def _finalize(value: Any) -> Any:
    """Every text that a template writes is made visible first; markup is the template's own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def page_table(table: Table, anchor: str = "") -> PageTable:
    """A table's cells as people read them."""
    shown = table.without_empty_columns()
    return PageTable(
        anchor=anchor or table.name,
        caption=shown.caption,
        head=tuple(
            Cell(text=column.title, kind="head", numeric=column.kind.numeric, column=column.key)
            for column in shown.columns
        ),
        rows=tuple(
            tuple(
                Cell(
                    text=cell_text(column.kind, value),
                    kind=column.kind.value,
                    numeric=column.kind.numeric,
                    column=column.key,
                )
                for column, value in zip(shown.columns, row, strict=True)
            )
            for row in shown.rows
        ),
    )
