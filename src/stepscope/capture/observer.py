"""Watching pipelines: what is installed where, and one observed call from before start to after end."""

from __future__ import annotations

import time
from contextvars import Token
from dataclasses import dataclass, replace
from typing import Any

from stepscope.capture.active import ACTIVE, ActiveCall, make_instance_wrapper, make_wrapper
from stepscope.capture.clock import DeviceClock, Mark
from stepscope.capture.components import Methods, components_of, is_pipeline, methods_of, methods_of_pipeline
from stepscope.capture.devices import clock_for
from stepscope.capture.freeze import freeze
from stepscope.capture.window import RawTrace, TraceRequest, TraceWindow
from stepscope.capture.wrapping import Wrappers
from stepscope.model.recording import CallKind, Recording
from stepscope.model.run import Anchor, ThreeEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What one observed call left behind."""

    recording: Recording
    raw_trace: RawTrace | None = None


class Observer:
    """Watches pipelines until closed. Use as a context manager; ``close`` leaves no trace."""

    def __init__(self, *, clock: DeviceClock | None = None) -> None:
        self._wrappers = Wrappers()
        self._clock = clock

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything that was installed."""
        self._wrappers.remove()

    def attach(self, pipeline: Any) -> tuple[dict[int, Methods], dict[type, Methods]]:
        """Wrap the classes of a pipeline's parts; returns who is who, by instance and by scheduler class."""
        table: dict[int, Methods] = {}
        by_class: dict[type, Methods] = {}
        parts = [("pipeline", pipeline), *components_of(pipeline)]
        for name, part in parts:
            if id(part) in table or part is None:
                continue
            methods = methods_of_pipeline(part, name) if is_pipeline(part) else methods_of(part, name)
            if not methods:
                continue
            table[id(part)] = methods
            if any(known.kind is CallKind.SCHEDULER_STEP for known in methods.values()):
                by_class.setdefault(type(part), methods)
            self._wrap(part, methods)
            # torch.compile(module) wraps: its own methods are reached through the wrapper's __getattr__
            inner = vars(part).get("_modules", {}).get("_orig_mod")
            if inner is not None:
                table[id(inner)] = {name: known for name, known in methods.items() if name != "__call__"}
        return table, by_class

    def _wrap(self, part: Any, methods: Methods) -> None:
        plain = getattr(part, "_orig_mod", part)
        for attribute in methods:
            if attribute in vars(part):
                self._wrappers.wrap(part, attribute, make_instance_wrapper(part))
            elif attribute == "__call__" or hasattr(type(part), attribute):
                self._wrappers.wrap(type(part), attribute, make_wrapper)
            elif hasattr(type(plain), attribute):
                self._wrappers.wrap(type(plain), attribute, make_wrapper)

    def begin(self, pipeline: Any, trace: TraceRequest | None = None) -> CallInProgress:
        """Start observing one call in this thread and context; the caller must ``finish`` it."""
        table, by_class = self.attach(pipeline)
        clock = self._clock or clock_for(execution_device(pipeline))
        return CallInProgress(ActiveCall(clock, table, by_class), trace)


class CallInProgress:
    """One observed call between its two synchronisations."""

    def __init__(self, call: ActiveCall, trace: TraceRequest | None = None) -> None:
        self.call = call
        self._clock = call.clock
        self._window = TraceWindow(call, trace) if trace is not None else None
        if self._window is not None:
            call.watchers.append(self._window)
            self._window.begin()
        self._clock.synchronise()
        self._anchor = Anchor(unix_ns=time.time_ns(), host_ns=self._clock.now_ns(), device=self._clock.device)
        self._start_ns = self._clock.now_ns()
        self._start = self._mark()
        self._token: Token[ActiveCall | None] = ACTIVE.set(call)

    def _mark(self) -> Mark:
        return self._clock.mark() or (self._clock.now_ns(), None)

    def finish(self, error: BaseException | None = None) -> Captured:
        """End the observation, however the call ended, and freeze what was seen."""
        ACTIVE.reset(self._token)
        returned_ns = self._clock.now_ns()
        end = self._mark()
        reason = None if error is None else f"{type(error).__name__}: {error}"
        try:
            self._clock.synchronise()
        except RuntimeError as failure:  # a device that has failed fails again when waited for
            reason = reason or f"the device failed: {failure}"
        ends = ThreeEnds(
            start_ns=self._start_ns, returned_ns=returned_ns, device_done_ns=self._clock.now_ns()
        )
        if self._window is not None:
            self._window.end()
        recording = freeze(
            self.call, start=self._start, end=end, ends=ends, anchor=self._anchor, incomplete=reason
        )
        return self._with_trace(recording)

    def _with_trace(self, recording: Recording) -> Captured:
        window = self._window
        if window is None:
            return Captured(recording=recording)
        raw = window.export()
        return Captured(
            recording=replace(
                recording,
                warnings=(*recording.warnings, *window.warnings),
                anchors=(*recording.anchors, *window.profiler.wall_anchors),
                outside=window.outside,
            ),
            raw_trace=raw,
        )


def execution_device(pipeline: Any) -> Any:
    """The ``torch.device`` on which a pipeline computes, whether or not its weights are there now."""
    import torch

    for attribute in ("_execution_device", "device"):
        device = getattr(pipeline, attribute, None)
        if isinstance(device, torch.device):
            return device
    for _, part in components_of(pipeline):
        if isinstance(part, torch.nn.Module):
            return next((parameter.device for parameter in part.parameters()), torch.device("cpu"))
    return torch.device("cpu")
