"""Every call of a pipeline, from any thread, without a change to the code that calls it."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Protocol

from stepscope.capture.active import ACTIVE, ActiveCall
from stepscope.capture.frames import hide_our_frames
from stepscope.capture.pipeline_classes import PipelineClasses
from stepscope.capture.wrapping import Wrappers
from stepscope.model.errors import UsageError


@dataclass(frozen=True, slots=True)
class PipelineCall:
    """A call about to be made: calling this makes it."""

    pipeline: Any
    function: Callable[..., Any]  # the class's own ``__call__``
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        return self.function(self.pipeline, *self.args, **self.kwargs)


Handler = Callable[[Any, PipelineCall], Any]
"""Given a pipeline and the call about to be made: makes it and returns its result."""


class _Watching(Protocol):
    handler: Handler
    every: bool

    def watches(self, pipeline: Any) -> bool: ...


_lock = threading.Lock()
_everywhere: list[_Watching] = []
_here: ContextVar[tuple[_Watching, ...]] = ContextVar("stepscope_watches", default=())


class Watch:
    """While entered, calls of ``pipeline`` go through ``handler``.

    A thread that has a watch of its own for the pipeline uses that one, so two sessions in two threads do not
    mix; threads without one (a server's pool) use the oldest. The pipeline is not kept alive. With ``here``
    False no thread has it for its own: it may be entered in one thread and left in another.
    """

    every = False

    def __init__(self, pipeline: Any, handler: Handler, *, here: bool = True) -> None:
        check_watchable(pipeline)
        self.handler = handler
        try:
            self._pipeline: Callable[[], Any] = weakref.ref(pipeline)
        except TypeError:  # slots without __weakref__: then it is kept alive
            self._pipeline = lambda: pipeline
        self._type = type(pipeline)
        self._wrappers = Wrappers()
        self._place = _Place(here=here)

    def __enter__(self) -> Watch:
        self._wrappers.wrap(self._type, "__call__", _make_pipeline_wrapper)
        self._place.take(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._place.leave(self)
        self._wrappers.remove()

    def watches(self, pipeline: Any) -> bool:
        return self._place.taken and self._pipeline() is pipeline


class WatchAll:
    """As ``Watch``, for every diffusers pipeline: those there are, and those of classes yet to be imported.

    It comes after any watch of one pipeline. Neither torch nor diffusers is imported.
    """

    every = True

    def __init__(
        self,
        handler: Handler,
        *,
        block: Callable[[str], AbstractContextManager[None]],
        here: bool = True,
        bare: Callable[[], ActiveCall | None] | None = None,
    ) -> None:
        self.handler = handler
        self.block = block  # observes a named block of code
        self.bare = bare  # begins a call for stages marked outside of one, in this thread and context
        self._classes = PipelineClasses(_make_pipeline_wrapper)
        self._place = _Place(here=here)

    def __enter__(self) -> WatchAll:
        self._classes.install()
        self._place.take(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._place.leave(self)
        self._classes.remove()

    def watches(self, _pipeline: Any) -> bool:
        return self._place.taken


class _Place:
    """Where a watch stands: everywhere, and first in the thread and context that entered it."""

    def __init__(self, *, here: bool) -> None:
        self.taken = False
        self._here = here
        self._token: Token[tuple[_Watching, ...]] | None = None

    def take(self, watch: _Watching) -> None:
        if self._here:
            self._token = _here.set((watch, *_here.get()))
        with _lock:
            first = next((at for at, known in enumerate(_everywhere) if known.every), len(_everywhere))
            _everywhere.insert(first, watch)  # one pipeline's by age; then the newest of all pipelines
        self.taken = True

    def leave(self, watch: _Watching) -> None:
        self.taken = False
        with _lock:
            _everywhere.remove(watch)
        if self._token is not None:
            with suppress(ValueError):  # left in another context: there it stands no more, here it is passive
                _here.reset(self._token)


def observed_block(name: str) -> AbstractContextManager[None]:
    """A call that a program marks itself, by the watch of everything that a pipeline's call would go to."""
    for watch in (*_here.get(), *_everywhere):
        if isinstance(watch, WatchAll):
            return watch.block(name)
    return nullcontext()


def begin_block_here() -> ActiveCall | None:
    """A call for what the program marks outside of any, begun by this thread's own watch of everything."""
    for watch in _here.get():
        if isinstance(watch, WatchAll) and watch.bare is not None:
            return watch.bare()
    return None


def watched_here(pipeline: Any) -> bool:
    """Whether this thread and context has a watch of its own for this pipeline; None: for any at all."""
    return any(pipeline is None or watch.watches(pipeline) for watch in _here.get())


def check_watchable(pipeline: Any) -> None:
    """Raise UsageError for what is no pipeline and cannot be observed as one."""
    name = type(pipeline).__name__
    if inspect.isclass(pipeline):
        raise UsageError(f"{pipeline.__name__} is a class.", remedy="Give the pipeline itself.")
    if not callable(pipeline):
        raise UsageError(
            f"{name} cannot be called, so its calls cannot be observed.",
            remedy="Give a pipeline, or observe a function that runs it.",
        )
    if not inspect.isfunction(inspect.getattr_static(type(pipeline), "__call__", None)):
        raise UsageError(
            f"a {name} is no pipeline: its calls cannot be observed.",
            remedy="Give the pipeline it runs, or put the call into: with stepscope.call(name).",
        )


def _watch_of(pipeline: Any) -> _Watching | None:
    for watch in (*_here.get(), *_everywhere):
        if watch.watches(pipeline):
            return watch
    return None


def _make_pipeline_wrapper(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
    from torch import cuda

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A pipeline called inside an observed call is part of that call. While a graph is captured the device
        # cannot be waited for.
        active = ACTIVE.get()
        if active is not None and active.adopt is not None:
            active.adopt(self, args, kwargs)
        watch = _watch_of(self) if active is None else None
        if watch is None or (cuda.is_initialized() and cuda.is_current_stream_capturing()):
            return original(self, *args, **kwargs)
        try:
            return watch.handler(self, PipelineCall(self, original, args, kwargs))
        except BaseException as error:
            hide_our_frames(error)
            raise

    return observed
