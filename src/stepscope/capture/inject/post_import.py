"""Doing something right after a module was imported, without importing it ourselves."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]


class _Loader(importlib.abc.Loader):
    """The module's own loader, and our action after it."""

    def __init__(self, loader: importlib.abc.Loader, action: Action) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # what asks the module for its loader finds its own
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action(module)

    def __getattr__(self, name: str) -> Any:
        """What else the module's own loader can do: ``python -m`` asks for its code, others for its data."""
        return getattr(object.__getattribute__(self, "_loader"), name)


class PostImport(importlib.abc.MetaPathFinder):
    """Calls an action for each named module when it has been imported; at once if it is there already.

    ``action`` must not raise.
    """

    def __init__(self, names: frozenset[str], action: Action) -> None:
        self._names = names
        self._action = action
        self._searching = threading.local()

    def install(self) -> None:
        """Begin. Modules that are imported already are acted on now."""
        sys.meta_path.insert(0, self)
        for name in sorted(self._names & sys.modules.keys()):
            self._action(sys.modules[name])

    def remove(self) -> None:
        """End: modules imported from now on are not acted on."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the interface
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders have for a named module, with our loader in front."""
        if fullname not in self._names or getattr(self._searching, "on", False):
            return None
        self._searching.on = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.on = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._action)
        return spec
