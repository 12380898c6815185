"""The torch modules, schedulers and pipelines that an engine's objects hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stepscope.capture.components import components_of, is_pipeline


def parts_of(owners: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """``(name, part)`` of everything the owners hold, each part once.

    A torch module holds its children in ``_modules``, past ``vars``; a diffusers pipeline that an owner holds
    is followed by its own parts.
    """
    seen: set[int] = set()
    for owner in owners:
        children = vars(owner).get("_modules")
        inner = children.items() if isinstance(children, dict) else ()
        for name, part in (*components_of(owner), *inner):
            if part is None or id(part) in seen or not _worth_watching(part):
                continue
            seen.add(id(part))
            yield name, part


def _worth_watching(part: Any) -> bool:
    """Objects of classes that are parts of pipelines; not numbers, texts, dictionaries and configurations."""
    return (
        is_pipeline(part)
        or hasattr(part, "named_parameters")
        or callable(getattr(part, "step", None))
        or callable(getattr(part, "postprocess", None))
    )
