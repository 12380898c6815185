"""A range for every module of the pipeline, by forward hooks: detailed, and not free (docs/profiling.md)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from stepscope.capture.active import ActiveCall
from stepscope.capture.components import Known
from stepscope.capture.nsight.ranges import Marker, NvtxRanges


class LayerRanges:
    """``NvtxRanges`` with module ranges inside: hooks are set at the beginning and removed at the end.

    Modules compiled by torch.compile, and what is in them, are left out: a hook would break the graph.
    """

    def __init__(self, call: ActiveCall, ranges: NvtxRanges, marker: Marker) -> None:
        self._ranges = ranges
        self._marker = marker
        self._modules = call.modules
        self._hooks: list[Any] = []
        self._depth = 0

    def begin(self) -> None:
        """Set the hooks."""
        for name, module in self._modules:
            self._hook(name, module, seen=set())
        self._ranges.begin()

    def before(self, known: Known) -> None:
        """A known call is about to begin."""
        self._ranges.before(known)

    def after(self, known: Known) -> None:
        """It has ended."""
        self._ranges.after(known)

    def close(self) -> None:
        """Remove the hooks, close every range."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        while self._depth:
            self._leave()
        self._ranges.close()

    def labelled(self, name: str) -> AbstractContextManager[None]:
        """As ``NvtxRanges.labelled``."""
        return self._ranges.labelled(name)

    def _hook(self, path: str, module: Any, seen: set[int]) -> None:
        if id(module) in seen or _is_compiled(module):
            return
        seen.add(id(module))
        self._hooks.append(module.register_forward_pre_hook(self._entering(path)))
        self._hooks.append(module.register_forward_hook(self._leaving, always_call=True))
        for name, child in module.named_children():
            self._hook(f"{path}.{name}", child, seen)

    def _entering(self, path: str) -> Callable[..., None]:
        def enter(_module: Any, _arguments: Any) -> None:
            self._depth += 1
            self._marker.push(path)

        return enter

    def _leaving(self, *_: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._depth:
            self._depth -= 1
            self._marker.pop()


def _is_compiled(module: Any) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
