"""Observe pipeline calls: one given as a callable, or every call in a ``with`` block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from stepscope.analyse.assemble import assemble
from stepscope.analyse.window import window_steps
from stepscope.capture.clock import DeviceClock
from stepscope.capture.observer import Observer
from stepscope.capture.window import RawTrace, TraceRequest
from stepscope.model.run import Environment, Run, Workload

__all__ = ["ObserveOptions", "ObservedCall", "RawTrace", "TraceRequest", "observe_call"]


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
        progress = observer.begin(pipeline, options.trace)
        try:
            result = call()
        except BaseException as raised:
            error = raised
        captured = progress.finish(error)
    run = assemble(
        captured.recording,
        request_id=request_id,
        call_id=call_id,
        workload=workload,
        environment=environment,
    )
    raw = captured.raw_trace
    if raw is not None:
        held = window_steps(run.steps, asked=raw.request.steps, all_stages=raw.request.all_stages)
        raw = replace(raw, steps=held)
    return ObservedCall(result=result, error=error, run=run, raw_trace=raw)
