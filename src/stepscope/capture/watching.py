"""Every call of a pipeline, from any thread, without a change to the code that calls it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

from stepscope.capture.active import ACTIVE
from stepscope.capture.wrapping import Wrappers
from stepscope.model.errors import UsageError

Handler = Callable[[Any, Callable[[], Any]], Any]
"""Given a pipeline and the call about to be made: makes it and returns its result."""

_lock = threading.Lock()
_everywhere: list[Watch] = []
_here: ContextVar[tuple[Watch, ...]] = ContextVar("stepscope_watches", default=())


class Watch:
    """While entered, calls of ``pipeline`` go through ``handler``.

    A thread that has a watch of its own for the pipeline uses that one, so two sessions in two threads do not
    mix; threads without one (a server's pool) use the oldest. The pipeline is not kept alive.
    """

    def __init__(self, pipeline: Any, handler: Handler) -> None:
        if not callable(pipeline):
            raise UsageError(
                f"{type(pipeline).__name__} cannot be called, so its calls cannot be observed.",
                remedy="Give a pipeline, or observe a function that runs it.",
            )
        self.handler = handler
        try:
            self._pipeline: Callable[[], Any] = weakref.ref(pipeline)
        except TypeError:  # slots without __weakref__: then it is kept alive
            self._pipeline = lambda: pipeline
        self._type = type(pipeline)
        self._wrappers = Wrappers()
        self._token: Token[tuple[Watch, ...]] | None = None

    def __enter__(self) -> Watch:
        self._wrappers.wrap(self._type, "__call__", _make_pipeline_wrapper)
        self._token = _here.set((self, *_here.get()))
        with _lock:
            _everywhere.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _everywhere.remove(self)
        if self._token is not None:
            _here.reset(self._token)
        self._wrappers.remove()

    def watches(self, pipeline: Any) -> bool:
        return self._pipeline() is pipeline


def _watch_of(pipeline: Any) -> Watch | None:
    for watch in (*_here.get(), *_everywhere):
        if watch.watches(pipeline):
            return watch
    return None


def _make_pipeline_wrapper(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
    from torch import cuda

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A pipeline called inside an observed call is part of that call. While a graph is captured the device
        # cannot be waited for.
        watch = _watch_of(self) if ACTIVE.get() is None else None
        if watch is None or (cuda.is_initialized() and cuda.is_current_stream_capturing()):
            return original(self, *args, **kwargs)
        return watch.handler(self, lambda: original(self, *args, **kwargs))

    return observed
