"""Observe pipeline calls: one given as a callable, or every call in a ``with`` block."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from stepscope.analyse.run.assemble import assemble
from stepscope.analyse.run.step_cache import disagreement
from stepscope.analyse.run.window import window_steps
from stepscope.capture.clock import DeviceClock
from stepscope.capture.nsight.marker import NvtxRequest
from stepscope.capture.observer import CallInProgress, Captured, Observer
from stepscope.capture.tracing import RawTrace, Switching, TraceRequest
from stepscope.capture.watching import Watch
from stepscope.model.run import Environment, Run, Workload
from stepscope.session.nsight.request import requested_nvtx

__all__ = [
    "Observation",
    "ObserveOptions",
    "ObservedCall",
    "RawTrace",
    "Switching",
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
    nvtx: NvtxRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCall:
    """What an observed call gave: its result or its exception, and the run, complete or not."""

    result: Any
    run: Run
    error: BaseException | None = None
    raw_trace: RawTrace | None = None
    unsteady: tuple[str, ...] = ()  # why another call may be faster: compilation, allocator growth, ...


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
    identity = CallIdentity(request_id, call_id, workload, environment)
    return observed_of(captured, identity, result=result, error=error)


class Observation:
    """The calls that an ``observing`` block has seen so far, oldest first."""

    def __init__(self) -> None:
        self._calls: deque[ObservedCall] = deque(maxlen=KEPT_CALLS)
        self._problems: deque[str] = deque(maxlen=KEPT_CALLS)

    @property
    def calls(self) -> tuple[ObservedCall, ...]:
        """Finished calls, failed ones included; ``result`` is None in each, it belongs to the caller."""
        return tuple(self._calls)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why calls that were made are not in ``calls``: a fault of the observer is not the caller's."""
        return tuple(self._problems)

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """Note and log an exception of the observer's own instead of raising it into the user's call."""
        try:
            yield
        except Exception as error:
            self.blame(error)

    def blame(self, error: Exception) -> None:
        """Note and log what kept a call from being observed."""
        self._problems.append(f"{type(error).__name__}: {error}")
        logging.getLogger("stepscope").warning("a call could not be observed", exc_info=error)

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
    if options.nvtx is None:
        options = replace(options, nvtx=requested_nvtx())

    with Observer(clock=options.clock) as observer:

        def handle(called: Any, call: Callable[[], Any]) -> Any:
            call_id = next(ids)
            identity = CallIdentity(request_id(call_id), call_id, workload, environment)
            try:
                progress = _begin(observer, called, options)
            except Exception as error:
                observation.blame(error)
                return call()
            try:
                result = call()
            except BaseException as error:
                with observation.unharmed():
                    observation.keep(observed_of(progress.finish(error), identity, error=error))
                raise
            with observation.unharmed():
                observation.keep(observed_of(progress.finish(None, result), identity))
            return result

        watch = Watch(pipeline, handle)
        del pipeline  # a session does not keep it alive
        with watch:
            yield observation


def _begin(observer: Observer, pipeline: Any, options: ObserveOptions) -> CallInProgress:
    return observer.begin(pipeline, trace=options.trace, own_process=options.own_process, nvtx=options.nvtx)


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """Which call of what, where."""

    request_id: str
    call_id: int
    workload: Workload
    environment: Environment


def where_it_ended(run: Run) -> str | None:
    """Why a run is incomplete, with the stage and step that it had reached."""
    if run.incomplete_reason is None or not run.stages:
        return run.incomplete_reason
    stage = run.stages[-1]
    step = run.steps[-1] if run.steps else None
    in_step = step is not None and step.stage_index == stage.stage_index
    reached = f"{stage.span.name}, step {step.index}" if step is not None and in_step else stage.span.name
    return f"{run.incomplete_reason.rstrip(': ')}, in {reached}"


def observed_of(
    captured: Captured, identity: CallIdentity, *, result: Any = None, error: BaseException | None = None
) -> ObservedCall:
    """The run of what was captured, and which steps its trace is to hold."""
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
    )
