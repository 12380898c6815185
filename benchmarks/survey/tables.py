"""The data tables: which components a pipeline class takes, in which tiny configuration, and its call.

``data/components.json`` maps a component class to its library and tiny configurations;
``data/pipelines.json`` maps a pipeline class to its components and call arguments. Both are data only. The
values are those that diffusers' own tests (Apache-2.0) use for tiny models, or were found by trying.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentEntry:
    """One component class: where it is and the configurations that are tried with it."""

    library: str
    module: str = ""  # classes that their library does not export
    config_class: str = ""  # transformers models
    variants: tuple[Mapping[str, Any], ...] = ({},)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEntry:
    """One pipeline class: its components by role (``Class``, ``Class#variant``, ...) and its call."""

    components: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    prepare: Mapping[str, Any] = field(default_factory=dict)  # methods to call first, with their arguments


@cache
def component_entries() -> dict[str, ComponentEntry]:
    """All component classes of the table."""
    table = json.loads((DATA / "components.json").read_text(encoding="utf-8"))
    return {
        name: ComponentEntry(**{**entry, "variants": tuple(entry.get("variants", ({},)))})
        for name, entry in table.items()
    }


@cache
def pipeline_entries() -> dict[str, PipelineEntry]:
    """All pipeline classes of the table; an entry that is ``like`` another takes what it does not say itself.

    A component or argument given as ``"-"`` is one that the other has and this one has not.
    """
    table = json.loads((DATA / "pipelines.json").read_text(encoding="utf-8"))
    return {name: _resolved(name, table) for name in table}


def _resolved(name: str, table: Mapping[str, Any]) -> PipelineEntry:
    entry = table[name]
    like = entry.get("like")
    base = _resolved(like, table) if like else PipelineEntry()
    return PipelineEntry(
        components=_merged(base.components, entry.get("components", {})),
        call=_merged(base.call, entry.get("call", {})),
        prepare=_merged(base.prepare, entry.get("prepare", {})),
    )


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**base, **own}.items() if value != "-"}
