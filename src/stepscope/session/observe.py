"""Observe pipeline calls: one given as a callable, or every call in a ``with`` block."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from stepscope.analyse.run.assemble import assemble
from stepscope.analyse.run.step_cache import CacheEffect, disagreement, effect
from stepscope.analyse.run.window import window_steps
from stepscope.capture.clock import DeviceClock
from stepscope.capture.observer import CallInProgress, Captured, Observer
from stepscope.capture.watching import Watch
from stepscope.capture.window import RawTrace, TraceRequest
from stepscope.model.run import Environment, Run, Workload

__all__ = [
    "Observation",
    "ObserveOptions",
    "ObservedCall",
    "RawTrace",
    "TraceRequest",
    "observe_call",
    "observing",
]

KEPT_CALLS = 1000
"""How many calls an observation holds: a server's memory must stay bounded. The oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveOptions:
    """How to observe. ``own_process``: the process is ours, so allocator peaks may be reset."""

    trace: TraceRequest | None = None
    own_process: bool = False
    clock: DeviceClock | None = None  # None: the one for the pipeline's device


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCall:
    """What an observed call gave: its result or its exception, and the run, complete or not."""

    result: Any
    run: Run
    error: BaseException | None = None
    raw_trace: RawTrace | None = None
    unsteady: tuple[str, ...] = ()  # why another call may be faster: compilation, allocator growth, ...
    cache: CacheEffect | None = None  # what a step cache was worth, where one was mounted


def observe_call(
    pipeline: Any,
    call: Callable[[], Any],
    *,
    request_id: str,
    workload: Workload,
    environment: Environment,
    options: ObserveOptions,
    call_id: int = 0,
) -> ObservedCall:
    """Run ``call`` and observe what ``pipeline`` does in it.

    An exception of the call (KeyboardInterrupt too) is in ``error``: the run holds what was seen until then,
    and the caller raises it again. Nothing stays installed.
    """
    result, error = None, None
    with Observer(clock=options.clock) as observer:
        progress = _begin(observer, pipeline, options)
        try:
            result = call()
        except BaseException as raised:
            error = raised
        captured = progress.finish(error, result)
    identity = _Identity(request_id, call_id, workload, environment)
    return _observed(captured, identity, result=result, error=error)


class Observation:
    """The calls that an ``observing`` block has seen so far, oldest first."""

    def __init__(self) -> None:
        self._calls: deque[ObservedCall] = deque(maxlen=KEPT_CALLS)

    @property
    def calls(self) -> tuple[ObservedCall, ...]:
        """Finished calls, failed ones included; ``result`` is None in each, it belongs to the caller."""
        return tuple(self._calls)

    def keep(self, call: ObservedCall) -> None:
        self._calls.append(call)


@contextmanager
def observing(
    pipeline: Any,
    *,
    request_id: Callable[[int], str],
    workload: Workload,
    environment: Environment,
    options: ObserveOptions,
) -> Iterator[Observation]:
    """Observe every call of ``pipeline`` in the block, from any thread; each is a run with its own id.

    The caller of the pipeline gets its result or exception as without. Raises UsageError for what is no
    pipeline.
    """
    observation = Observation()
    ids = itertools.count()

    with Observer(clock=options.clock) as observer:

        def handle(called: Any, call: Callable[[], Any]) -> Any:
            call_id = next(ids)
            identity = _Identity(request_id(call_id), call_id, workload, environment)
            progress = _begin(observer, called, options)
            try:
                result = call()
            except BaseException as error:
                observation.keep(_observed(progress.finish(error), identity, error=error))
                raise
            observation.keep(_observed(progress.finish(None, result), identity))
            return result

        watch = Watch(pipeline, handle)
        del pipeline  # a session does not keep it alive
        with watch:
            yield observation


def _begin(observer: Observer, pipeline: Any, options: ObserveOptions) -> CallInProgress:
    return observer.begin(pipeline, trace=options.trace, own_process=options.own_process)


@dataclass(frozen=True, slots=True)
class _Identity:
    """Which call of what, where."""

    request_id: str
    call_id: int
    workload: Workload
    environment: Environment


def _observed(
    captured: Captured, identity: _Identity, *, result: Any = None, error: BaseException | None = None
) -> ObservedCall:
    run = assemble(
        captured.recording,
        request_id=identity.request_id,
        call_id=identity.call_id,
        workload=identity.workload,
        environment=identity.environment,
        engaged=captured.engaged,
    )
    raw = captured.raw_trace
    if raw is not None:
        held = window_steps(run.steps, asked=raw.request.steps, all_stages=raw.request.all_stages)
        raw = replace(raw, steps=held)
    said = disagreement(captured.recording.cached_forwards)
    if said is not None:
        run = replace(run, warnings=(*run.warnings, said))
    return ObservedCall(
        result=result,
        error=error,
        run=run,
        raw_trace=raw,
        unsteady=captured.unsteady,
        cache=effect(run, captured.recording.cached_forwards),
    )
