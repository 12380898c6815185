"""Hook points: which method of which class is wrapped, by whom, and which could not be found."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

from stepscope.capture.engines.spool import Spool
from stepscope.capture.wrapping import Wrappers
from stepscope.model.engine_record import UNKNOWN_VERSION, ProcessRecord

Enter = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Given self, args and kwargs of a call that begins; what it returns is handed to ``Leave``."""
Leave = Callable[[Any, Any, BaseException | None], None]
"""Given what ``Enter`` returned, the call's result and its exception."""
Around = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Makes the call itself: the original (without self), self, args, kwargs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One method of one class of an engine."""

    module: str
    method: str  # Class.method
    enter: Enter
    leave: Leave = lambda token, result, error: None  # noqa: ARG005


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """What an engine's words mean, as hook points. ``distribution`` is the package that tells its version."""

    engine: str
    distribution: str
    tested: tuple[str, ...]
    hooks: tuple[Hook, ...]


class Fault(Protocol):
    """Takes a fault of ours; never raises."""

    def __call__(self, where: str, error: Exception) -> None: ...


@dataclass(slots=True)
class Hooks:
    """Wraps an adapter's hook points when their modules are imported, and says what it could not find."""

    adapter: Adapter
    spool: Spool
    wrappers: Wrappers = field(default_factory=Wrappers)
    found: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def modules(self) -> frozenset[str]:
        """The modules to watch for."""
        return frozenset(hook.module for hook in self.adapter.hooks)

    def imported(self, module: ModuleType) -> None:
        """Wrap the hook points of a module that was just imported; never raises: the engine imports it."""
        try:
            for hook in self.adapter.hooks:
                if hook.module == module.__name__:
                    self._wrap(hook, module)
            self._report()
        except Exception as error:
            self.spool.fault(module.__name__, error)

    def _wrap(self, hook: Hook, module: ModuleType) -> None:
        class_name, _, method = hook.method.rpartition(".")
        owner = getattr(module, class_name, None)
        if not inspect.isfunction(inspect.getattr_static(owner, method, None)):
            self.missing.append(f"{hook.module}.{hook.method}")
            return
        try:
            self.wrappers.wrap(owner, method, functools.partial(observed, hook, self.spool.fault))
        except Exception as error:
            self.spool.fault(hook.method, error)
            return
        self.found.append(f"{hook.module}.{hook.method}")

    def _report(self) -> None:
        self.spool.process(
            ProcessRecord(
                pid=self.spool.pid,
                engine=self.adapter.engine,
                version=version_of(self.adapter.distribution),
                tested=self.adapter.tested,
                found=tuple(self.found),
                missing=tuple(self.missing),
            )
        )


def observed(hook: Hook, fault: Fault, original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
    """The function that stands for ``original``: ours before and after it, and none of our faults in it."""
    before, after = _guarded(hook.enter, hook.method, fault), _guarded(hook.leave, hook.method, fault)
    if inspect.iscoroutinefunction(original):

        async def asynchronous(self: Any, *args: Any, **kwargs: Any) -> Any:
            token = before(self, args, kwargs)
            try:
                result = await original(self, *args, **kwargs)
            except BaseException as error:
                after(token, None, error)
                raise
            after(token, result, None)
            return result

        return asynchronous

    def synchronous(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = before(self, args, kwargs)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            after(token, None, error)
            raise
        after(token, result, None)
        return result

    return synchronous


def _guarded(work: Callable[..., Any], where: str, fault: Fault) -> Callable[..., Any]:
    def guarded(*args: Any) -> Any:
        try:
            return work(*args)
        except Exception as error:
            fault(where, error)
            return None

    return guarded


@functools.cache
def version_of(distribution: str) -> str:
    """The installed version, or ``UNKNOWN_VERSION`` where no metadata says it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN_VERSION


def argument(position: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An argument of an engine's method, given by place or by name; None where it was not given."""
    return args[position] if len(args) > position else kwargs.get(name)


def first(items: Any) -> Any:
    """The first of a list of requests, or the request itself."""
    return (
        next(iter(items), None) if isinstance(items, Iterable) and not hasattr(items, "request_id") else items
    )
