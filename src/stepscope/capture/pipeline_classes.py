"""Wrapping the call of every pipeline class: those imported already, and each one that is defined later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from stepscope.capture.inject.post_import import PostImport
from stepscope.capture.wrapping import Wrappers

BASES = {
    "diffusers.pipelines.pipeline_utils": "DiffusionPipeline",
    "diffusers.modular_pipelines.modular_pipeline": "ModularPipeline",
}
"""The modules that define the classes of which every pipeline is one."""

_HOOK = "__init_subclass__"

_lock = threading.RLock()
_hooked: dict[type, _Hook] = {}


class PipelineClasses:
    """While installed, ``__call__`` of each pipeline class is what ``make(original, "__call__")`` gives.

    A module that is imported later is waited for, not imported; a subclass is wrapped when it is defined, by
    ``__init_subclass__`` of the base.
    """

    def __init__(self, make: Callable[[Callable[..., Any], str], Any]) -> None:
        self._make = make
        self._wrappers = Wrappers()
        self._hooks: list[_Hook] = []
        self._import = PostImport(frozenset(BASES), self._imported)

    def install(self) -> None:
        self._import.install()

    def remove(self) -> None:
        self._import.remove()
        with _lock:
            for hook in self._hooks:
                hook.remove(self)
            self._hooks.clear()
        self._wrappers.remove()

    def wrap(self, cls: type) -> None:
        if "__call__" in vars(cls):
            self._wrappers.wrap(cls, "__call__", self._make)

    def _imported(self, module: ModuleType) -> None:
        base = getattr(module, BASES[module.__name__], None)
        if not isinstance(base, type):
            return
        with _lock:
            hook = _hooked.get(base) or _Hook(base)
            hook.add(self)
            self._hooks.append(hook)
        for cls in subclasses(base):
            self.wrap(cls)


class _Hook:
    """``__init_subclass__`` of one base, for as long as anybody wants to hear of new classes."""

    def __init__(self, base: type) -> None:
        self._base = base
        self._before = vars(base).get(_HOOK)
        self._wanted: list[PipelineClasses] = []

        def defined(cls: type, /, **keywords: Any) -> None:
            self._defined(cls, **keywords)

        self._ours: Any = classmethod(defined)

    def add(self, who: PipelineClasses) -> None:
        if not self._wanted:
            setattr(self._base, _HOOK, self._ours)
            _hooked[self._base] = self
        self._wanted.append(who)

    def remove(self, who: PipelineClasses) -> None:
        self._wanted.remove(who)
        if self._wanted:
            return
        del _hooked[self._base]
        if vars(self._base).get(_HOOK) is not self._ours:
            return  # somebody replaced ours meanwhile: theirs stays, and ours in it does nothing
        if self._before is None:
            delattr(self._base, _HOOK)
        else:
            setattr(self._base, _HOOK, self._before)

    def _defined(self, cls: type, /, **keywords: Any) -> None:
        if self._before is not None:
            self._before.__get__(None, cls)(**keywords)
        else:
            super(self._base, cls).__init_subclass__(**keywords)  # type: ignore[arg-type]
        for who in tuple(self._wanted):
            who.wrap(cls)


def subclasses(base: type) -> Iterator[type]:
    """``base`` and every class below it, each once."""
    seen: set[type] = set()
    left = [base]
    while left:
        cls = left.pop()
        if cls not in seen:
            seen.add(cls)
            yield cls
            left += type.__subclasses__(cls)
