"""Watching pipelines: what is installed where, and one observed call from before start to after end."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import Token
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from stepscope.capture.active import ACTIVE, ActiveCall, make_instance_wrapper, make_wrapper
from stepscope.capture.blocks import blocks_of
from stepscope.capture.caches import CacheWatch
from stepscope.capture.clock import DeviceClock, JointClock, Mark
from stepscope.capture.components import Methods, components_of, is_pipeline, methods_of, methods_of_pipeline
from stepscope.capture.cpu_use import cpu_use, read_cpu
from stepscope.capture.devices import EVENT_DEVICES, clock_device, clock_for
from stepscope.capture.engaged import attention_backend, compiled_modules
from stepscope.capture.freeze import freeze
from stepscope.capture.graphs import watch_graphs
from stepscope.capture.held_up import held_up_ns
from stepscope.capture.iterations import watch_iterations
from stepscope.capture.labels import watch_labels
from stepscope.capture.memory import MemoryWatch
from stepscope.capture.nsight.marker import NvtxRequest, watch_call
from stepscope.capture.offload import watch_offload_hooks
from stepscope.capture.profiler import still_attached
from stepscope.capture.steadiness import changes, read_signals
from stepscope.capture.tracing import RawTrace, TraceRequest
from stepscope.capture.window import TraceWindow
from stepscope.capture.wrapping import Wrappers
from stepscope.model.recording import BETWEEN_STEPS, CallKind, Recording
from stepscope.model.run import Anchor, Engaged, ThreeEnds

Seen = TypeVar("Seen")
PIPELINE = "pipeline"
"""The name of the object whose own methods are a pipeline's; an engine's need be of no class we know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What one observed call left behind."""

    recording: Recording
    engaged: Engaged
    raw_trace: RawTrace | None = None
    unsteady: tuple[str, ...] = ()  # why the next call may be faster


@dataclass(frozen=True, slots=True)
class Parts:
    """Who is who in a pipeline: by instance, and schedulers by class too, because pipelines copy them."""

    table: dict[int, Methods]
    by_class: dict[type, Methods]
    modules: tuple[tuple[str, Any], ...]
    schedulers: list[Any] = field(default_factory=list)


class Observer:
    """Wraps what pipelines are made of, until closed. Use as a context manager; ``close`` leaves no trace."""

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

    def attach(self, pipeline: Any) -> Parts:
        """Wrap the classes of a pipeline's parts, and the offload hooks and graphs that are loaded."""
        parts = self.attach_parts(((PIPELINE, pipeline), *components_of(pipeline)))
        for _, block, methods in blocks_of(pipeline):
            self._add(parts, block, methods)
        return parts

    def attach_parts(self, named: Iterable[tuple[str, Any]]) -> Parts:
        """As ``attach``, for parts that lie in an engine's objects: ``(name, part)`` of each."""
        named = list(named)
        parts = Parts({}, {}, tuple(modules_among(named)))
        for name, part in named:
            if part is None or id(part) in parts.table:
                continue
            methods = _methods(part, name)
            if methods:
                self._add(parts, part, methods)
        watch_offload_hooks(self._wrappers)
        watch_graphs(self._wrappers)
        watch_labels(self._wrappers)
        watch_iterations(self._wrappers)
        return parts

    def _add(self, parts: Parts, part: Any, methods: Methods) -> None:
        parts.table[id(part)] = methods
        if any(known.kind is CallKind.SCHEDULER_STEP for known in methods.values()):
            parts.by_class.setdefault(type(part), methods)
            parts.schedulers.append(part)
        plain = getattr(part, "_orig_mod", part)
        if plain is not part:  # torch.compile(module) leads to its methods by __getattr__
            parts.table[id(plain)] = {name: known for name, known in methods.items() if name != "__call__"}
        for attribute in methods:
            if attribute in getattr(part, "__dict__", ()):
                self._wrappers.wrap(part, attribute, make_instance_wrapper(part))
            else:
                owner = part if attribute == "__call__" or hasattr(type(part), attribute) else plain
                self._wrappers.wrap(type(owner), attribute, make_wrapper)

    def begin(
        self,
        pipeline: Any,
        *,
        trace: TraceRequest | None = None,
        own_process: bool = False,
        nvtx: NvtxRequest | None = None,
    ) -> CallInProgress:
        """Start observing one call in this thread and context; the caller must ``finish`` it."""
        parts = self.attach(pipeline)
        clock = self._clock or clock_of(pipeline, parts.modules)
        call = ActiveCall(clock, parts.table, parts.by_class, parts.modules, tuple(parts.schedulers))
        if nvtx is not None:
            watch_call(call, nvtx, self._wrappers)
        return CallInProgress(call, trace=trace, own_process=own_process)


class CallInProgress:
    """One observed call between its two synchronisations."""

    def __init__(self, call: ActiveCall, *, trace: TraceRequest | None, own_process: bool) -> None:
        self.call = call
        self._clock = call.clock
        self._own_process = own_process
        self._signals = read_signals(self._clock.device)
        self._clock.synchronise()
        self._caches = CacheWatch(call)
        self._memory = MemoryWatch(call, own_process=own_process)
        self._window = TraceWindow(call, trace) if trace is not None else None
        if self._window is not None:
            call.watchers.append(self._window)
            self._window.begin()
        self._cpu = read_cpu()
        try:
            self._clock.synchronise()
        except BaseException:
            if self._window is not None:
                self._window.end()
            raise
        self._anchor = Anchor(unix_ns=time.time_ns(), host_ns=self._clock.now_ns(), device=self._clock.device)
        self._start_ns = self._clock.now_ns()
        call.start = self._mark()
        self._token: Token[ActiveCall | None] = ACTIVE.set(call)

    def _mark(self) -> Mark:
        return self._clock.mark() or (self._clock.now_ns(), None)

    def suspend(self) -> None:
        """The call rests: an engine that works step by step does something else. Nothing is waited for."""
        ACTIVE.reset(self._token)
        self.call.rest()

    def resume(self) -> None:
        """It goes on, in the same thread; what lay between is a pause."""
        self.call.wake(BETWEEN_STEPS)
        self._token = ACTIVE.set(self.call)

    def leave_the_profiler(self) -> None:
        """Do without the trace: the profiler belongs to another thread than the one that ends the call."""
        self._window = None

    def finish(self, error: BaseException | None = None, result: Any = None) -> Captured:
        """End the observation, however the call ended, and freeze what was seen."""
        with suppress(ValueError):  # cut off from another thread or context
            ACTIVE.reset(self._token)
        try:
            ends, end, failure = self._end(None if error is not None else result)
        finally:
            if self._window is not None:
                self._window.end()
            if self.call.ranges is not None:
                self.call.ranges.close()
        self._caches.close()
        self._memory.end()
        reason = told(error) if error is not None else failure
        recording = freeze(
            self.call, start=self.call.start, end=end, ends=ends, anchor=self._anchor, incomplete=reason
        )
        return self._captured(replace(recording, warnings=(*recording.warnings, *_later(result))))

    def _end(self, result: Any) -> tuple[ThreeEnds, Mark, str | None]:
        """Take the three ends; a device that has failed fails again when it is waited for."""
        returned_ns = self._clock.now_ns()
        end = self._mark()
        failure = None
        try:
            self._clock.synchronise()
        except RuntimeError as error:
            failure = f"the device failed: {error}"
        done_ns = self._clock.now_ns()
        self._used = replace(cpu_use(self._cpu, read_cpu()), held_up_ns=held_up_ns(self._start_ns, done_ns))
        on_host_ns = self._on_host(result) if result is not None and failure is None else None
        ends = ThreeEnds(
            start_ns=self._start_ns, returned_ns=returned_ns, device_done_ns=done_ns, on_host_ns=on_host_ns
        )
        return ends, end, failure

    def _on_host(self, result: Any) -> int | None:
        """When the result can be read on the host: tensors left on a device are copied to find out."""
        tensors = device_tensors(result)
        if tensors and not self._own_process:
            return None
        for tensor in tensors:
            tensor.cpu()
        return self._clock.now_ns()

    def _captured(self, recording: Recording) -> Captured:
        window, memory = self._window, self._memory
        raw = window.export() if window is not None else None
        device_kind = (self._clock.device or "cpu").partition(":")[0]
        of_tracing = window.warnings if window is not None else still_attached(device_kind)
        warnings = (*recording.warnings, *memory.warnings, *of_tracing)
        unsteady = changes(
            self._signals, read_signals(self._clock.device), graph_captures=self.call.graph_captures
        )
        recording = replace(
            recording,
            warnings=warnings,
            cpu=self._used,
            anchors=(*recording.anchors, *(window.profiler.wall_anchors if window is not None else ())),
            outside=window.outside if window is not None else (),
            memory=tuple(memory.readings),
            memory_before=memory.before_forward,
            memory_after=memory.after_forward,
            memory_reason=memory.reason,
            cache=self._caches.cache,
            cached_forwards=tuple(self._caches.forwards),
        )
        return Captured(recording=recording, raw_trace=raw, unsteady=unsteady, engaged=self._engaged())

    def _engaged(self) -> Engaged:
        modules = [module for _, module in self.call.modules]
        compiled = read_signals(None).compiled_frames - self._signals.compiled_frames
        return Engaged(
            attention=_seen(lambda: attention_backend(self.call.denoisers())),
            compiled_modules=_seen(lambda: compiled_modules(modules)),
            compile_events=compiled,
            graph_replays=self.call.graph_replays,
        )


def _seen(look: Callable[[], Seen]) -> Seen | None:
    """What looking at somebody else's objects shows; None where they do not let themselves be looked at."""
    try:
        return look()
    except Exception:
        return None


def told(error: BaseException) -> str:
    """The kind of an exception and the first line of what it says, if it can say anything."""
    try:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    except Exception:
        return f"{type(error).__name__} (its text cannot be had)"


def _later(result: Any) -> tuple[str, ...]:
    """A coroutine or a generator does its work after the call that made it, and unseen."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        kind = type(result).__name__
        return (f"the call returned a {kind}: what it does when it is used is not in these times",)
    return ()


def _methods(part: Any, name: str) -> Methods:
    """What is known of a part; nothing of one that does not let itself be looked at."""
    try:
        return (
            methods_of_pipeline(part, name)
            if is_pipeline(part) or name == PIPELINE
            else methods_of(part, name)
        )
    except Exception:
        return {}


def modules_among(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The torch modules among named parts, each once, under its first name."""
    import torch

    seen: set[int] = set()
    for name, part in named:
        if issubclass(type(part), torch.nn.Module) and id(part) not in seen:
            seen.add(id(part))
            yield name, part


def device_tensors(result: Any, depth: int = 3) -> list[Any]:
    """Tensors in a pipeline's output that are not on the host."""
    import torch

    if isinstance(result, torch.Tensor):
        return [] if result.device.type in {"cpu", "meta"} else [result]
    if depth == 0 or isinstance(result, (str, bytes)):
        return []
    if isinstance(result, dict):  # a pipeline's output is an ordered dict
        result = list(result.values())
    if not isinstance(result, (list, tuple)):
        return []
    return [tensor for item in result for tensor in device_tensors(item, depth - 1)]


def clock_of(pipeline: Any, modules: Iterable[tuple[str, Any]]) -> DeviceClock:
    """The clock of the device that computes; a joint one where parts lie on several of its kind."""
    main = execution_device(pipeline)
    devices = {str(clock_device(main)): main}
    if main.type in EVENT_DEVICES:
        for _, module in modules:
            device = next((parameter.device for parameter in module.parameters()), main)
            if device.type == main.type:
                devices.setdefault(str(clock_device(device)), device)
    clocks = [clock_for(device) for device in devices.values()]
    return clocks[0] if len(clocks) == 1 else JointClock(clocks)


def execution_device(pipeline: Any) -> Any:
    """The ``torch.device`` on which a pipeline computes, whether or not its weights are there now."""
    import torch

    for attribute in ("_execution_device", "device"):
        device = None
        with suppress(Exception):  # a property of somebody's
            device = getattr(pipeline, attribute, None)
        if isinstance(device, torch.device):
            return device
    for _, part in components_of(pipeline):
        if issubclass(type(part), torch.nn.Module):
            return next((parameter.device for parameter in part.parameters()), torch.device("cpu"))
    return torch.device("cpu")
