"""Wrapping methods by class, dispatched on the instance, and taking every wrapper away again.

An attribute on an instance is copied by ``deepcopy`` and then drives the original (LTX2, SkyReels); a wrapper
without the original's signature silently loses arguments (LCM, IF, ...). A class's method replaced by a
function with the same signature has neither fault. Outside an observed call it is one check and the original.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

_ABSENT = object()
_OURS = "__stepscope_wrapper__"


class _Identity:
    """Hashes an owner by identity: instances may compare equal, or not be hashable at all."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __hash__(self) -> int:
        return id(self.owner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.owner is self.owner


class _Installed:
    """One replaced attribute; counted, since several sessions may watch the same class."""

    __slots__ = ("before", "count", "wrapper")

    def __init__(self, before: Any, wrapper: Any) -> None:
        self.before = before
        self.wrapper = wrapper
        self.count = 1


_lock = threading.RLock()
os.register_at_fork(  # a child must not inherit it from a thread that it has not
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
_installed: dict[tuple[_Identity, str], _Installed] = {}


def installed_count() -> int:
    """How many attributes are replaced right now, in all sessions."""
    return len(_installed)


class Wrappers:
    """The wrappers of one session. ``remove`` restores every class exactly."""

    def __init__(self) -> None:
        self._mine: list[tuple[_Identity, str]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any], str], Any]) -> None:
        """Replace ``owner.name`` (of a class, or an instance's own attribute) by ``make(original, name)``.

        What is already wrapped is only counted. Of a property its getter is replaced; static and class
        methods are left alone.
        """
        key = (_Identity(owner), name)
        with _lock:
            if key in _installed:
                if key not in self._mine:
                    _installed[key].count += 1
                    self._mine.append(key)
                return
            original = inspect.getattr_static(owner, name, None)  # None: a magic __getattr__ made it up
            is_instance = not inspect.isclass(owner)
            function: Any = original.fget if isinstance(original, property) else original
            if not (inspect.isfunction(function) or (is_instance and callable(function))):
                return
            before = vars(owner).get(name, _ABSENT)
            if getattr(function, _OURS, False):  # inherited from a class that is wrapped too
                function = function.__wrapped__
            wrapper: Any = functools.wraps(function)(make(function, name))
            setattr(wrapper, _OURS, True)
            if isinstance(original, property):
                wrapper = property(wrapper, original.fset, original.fdel, original.__doc__)
            _set(owner, name, wrapper)
            _installed[key] = _Installed(before, wrapper)
            self._mine.append(key)

    def remove(self) -> None:
        """Take this session's wrappers away; a method that was inherited is inherited again."""
        with _lock:
            for key in reversed(self._mine):
                entry = _installed[key]
                entry.count -= 1
                if entry.count:
                    continue
                del _installed[key]
                owner, name = key[0].owner, key[1]
                if vars(owner).get(name, _ABSENT) is not entry.wrapper:
                    continue  # somebody replaced ours meanwhile; theirs stays, and ours in it is passive
                if entry.before is _ABSENT:
                    _delete(owner, name)
                else:
                    _set(owner, name, entry.before)
            self._mine.clear()


def _set(owner: Any, name: str, value: Any) -> None:
    if inspect.isclass(owner):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value  # past nn.Module.__setattr__, which looks for parameters


def _delete(owner: Any, name: str) -> None:
    if inspect.isclass(owner):
        delattr(owner, name)
    else:
        del vars(owner)[name]
