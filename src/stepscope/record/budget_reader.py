"""Reads budgets.toml. A key that means nothing is an error: a misspelt budget would check nothing."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stepscope.model.budget import Baseline, Budget, Budgets, GateRules
from stepscope.model.errors import UnreadableInputError
from stepscope.model.nearest import nearest
from stepscope.record.input_file import read_small_file


def read_budgets(path: Path) -> Budgets:
    """The budgets in a TOML file.

    Raises:
        UnreadableInputError: no such file, not TOML, an unknown key, or a limit that is no positive number.

    """
    try:
        content = read_small_file(path, _LARGEST_BYTES)
        document = msgspec.toml.decode(content.removeprefix(codecs.BOM_UTF8))  # Windows' editors write one
        budgets = msgspec.convert(document, Budgets)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableInputError(f"{path} is no budget file: {error}.", remedy=_REMEDY) from error
    except RecursionError as error:
        raise UnreadableInputError(
            f"{path} is nested too deeply to be a budget file.", remedy=_REMEDY
        ) from error
    for problem in (*_unknown_keys(document), *_bad_limits(budgets), *_nothing_asked(document)):
        raise UnreadableInputError(f"{path}: {problem}.", remedy=_REMEDY)
    return budgets


_LARGEST_BYTES = 1 << 22
_REMEDY = "See docs/compare.md for the keys."
_TABLES: dict[str, Any] = {"default": Budget, "rules": GateRules, "baseline": Baseline}


def _unknown_keys(document: dict[str, Any]) -> Iterator[str]:
    yield from _unknown(document, Budgets, "the file")
    for name, kind in _TABLES.items():
        yield from _unknown(document.get(name, {}), kind, f"[{name}]")
    for name, table in document.get("gpu", {}).items():
        yield from _unknown(table, Budget, f'[gpu."{name}"]')


def _unknown(table: dict[str, Any], kind: Any, where: str) -> Iterator[str]:
    known = [field.name for field in dataclasses.fields(kind)]
    for key in table:
        if key not in known:
            near = nearest(key, known)
            hint = f" (did you mean {near[0]}?)" if near else f"; known are {', '.join(known)}"
            yield f"unknown key {key} in {where}{hint}"


def _bad_limits(budgets: Budgets) -> Iterator[str]:
    for budget in (budgets.default, *budgets.gpu.values()):
        if budget is None:
            continue
        limits = {field.name: getattr(budget, field.name) for field in dataclasses.fields(budget)}
        for name, limit in (limits | limits.pop("stages")).items():
            if limit is not None and not 0 < limit < float("inf"):
                yield f"{name} has to be a positive number, not {limit}"
    if any(not name.strip() for name in budgets.gpu):
        yield "a GPU's name is empty: its budget would hold for every device"
    if budgets.baseline is not None:
        if not 1 <= budgets.baseline.at_least <= budgets.baseline.last:
            yield "baseline.at_least has to lie between 1 and baseline.last"
        if not 0 <= budgets.baseline.allow_percent < float("inf"):
            yield f"baseline.allow_percent has to be zero or more, not {budgets.baseline.allow_percent}"


def _nothing_asked(document: dict[str, Any]) -> Iterator[str]:
    if not document:
        yield "it asks for nothing"
