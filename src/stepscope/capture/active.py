"""The live part: what runs inside the user's pipeline. It appends to a list and does nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from stepscope.capture.clock import DeviceClock, Mark
from stepscope.capture.components import Known, Methods
from stepscope.model.recording import CallKind
from stepscope.model.run import Pause

PAUSE = Known(CallKind.PAUSE, "profiler", "")
SETTLE_EVERY = 4 * 8192
"""List entries (four a mark) between two attempts to let go of events: some MB of them."""

Event = tuple[Known, bool, Mark | None, Any]
"""``(what, entering, mark, detail)``: the detail is the batch of a forward, or how a transfer was made."""


class Watcher:
    """Something that wants to act between known calls: the trace window, the memory readings."""

    def before(self, kind: CallKind) -> None:
        """Called before a known call of another kind than the last one is entered and marked."""


class ForwardWatch(Protocol):
    """Follows each call of a denoiser: step caches."""

    def begin(self) -> None:
        """A denoiser is called."""
        ...

    def end(self) -> None:
        """It has returned or raised."""
        ...

    def count(self, part: Any) -> None:
        """A part of one of its blocks is called."""
        ...

    def count_hooked(self, reference: Any, batch: int | None) -> None:
        """A hook that might have taken a cached result lets its part compute."""
        ...


class Ranges(Protocol):
    """Ranges of another profiler around known calls: NVTX."""

    def begin(self) -> None:
        """Before the pipeline call."""

    def before(self, known: Known) -> None:
        """A known call is about to begin; a pause is still possible."""

    def after(self, known: Known) -> None:
        """It has ended, however it ended."""

    def labelled(self, name: str) -> AbstractContextManager[None]:
        """Forwards in this block carry the pipeline's own name for them."""

    def close(self) -> None:
        """After the pipeline call, however it ended."""


class ActiveCall:
    """One pipeline call while it runs. Only its own thread and context touch it."""

    def __init__(
        self,
        clock: DeviceClock,
        table: dict[int, Methods],
        by_class: dict[type, Methods],
        modules: tuple[tuple[str, Any], ...] = (),
        schedulers: tuple[Any, ...] = (),
    ) -> None:
        self.clock = clock
        self.schedulers = schedulers
        self._flat: list[Any] = []
        self.watchers: list[Watcher] = []
        self.pauses: list[Pause] = []
        self.profiled: list[tuple[int, int]] = []
        self.modules = modules  # (name, module) of each component
        self.graph_replays = 0
        self.graph_captures = 0
        self.stream = current_stream(clock.device)
        self.thread = threading.get_native_id()  # as traces and Nsight name threads
        self.ranges: Ranges | None = None
        self.every_call = False  # watchers want each call, not only a change of kind
        self.named: list[Known] = []  # stages that the user has named and that are open
        self.steps_open = 0  # iterations that the user has marked
        self.adopt: Callable[[Any], None] | None = None  # what to do with a pipeline called in here
        self.labels: list[tuple[int, str | None]] = []  # what forwards are called, from this event on
        self._table = table
        self._by_class = by_class  # schedulers only: copies of one are the same part of the pipeline
        self._last_kind: CallKind | None = None
        self.start: Mark = (0, None)  # set when the call begins
        self._bridge = 0  # the last settled mark's place
        self._settled = 0  # the part of the list whose marks hold no events any more
        self._settle_at = SETTLE_EVERY
        self._resting_since = 0
        self.forward_watch: ForwardWatch | None = None

    @property
    def events(self) -> list[Event]:
        """What was noted, in order. It is kept flat: objects held alive would feed the garbage collector."""
        flat = iter(self._flat)
        return list(zip(flat, flat, flat, flat, strict=True))

    @property
    def has_scheduler(self) -> bool:
        """Whether any part of the pipeline takes scheduler steps."""
        return bool(self._by_class)

    def denoisers(self) -> list[Any]:
        """The modules that predict noise."""
        calls = ((module, self._table.get(id(module), {}).get("__call__")) for _, module in self.modules)
        return [module for module, known in calls if known is not None and known.kind is CallKind.FORWARD]

    def known(self, instance: Any, attribute: str) -> Known | None:
        """What this method of this instance is to the observed pipeline; None: not one of its parts."""
        methods = self._table.get(id(instance))
        if methods is None:
            methods = self._by_class.get(type(instance))
            if methods is None:
                return None
        return methods.get(attribute)

    def enter(self, known: Known, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Note that a known call begins; False if it must not be noted (a graph is being captured)."""
        kind = known.kind
        if kind is CallKind.HOUSEKEEPING:
            return self.enter_unstaged(known)
        if self.watchers and (kind is not self._last_kind or self.every_call or kind is CallKind.STEP):
            probe = self.clock.mark()
            if probe is None:  # a watcher may wait for the device, which would break the capture
                return False
            self.clock.release([probe])
            for watcher in self.watchers:
                watcher.before(kind)
        self._last_kind = kind
        if self.ranges is not None:
            self.ranges.before(known)
        mark = self.clock.mark()
        if mark is None:
            if self.ranges is not None:
                self.ranges.after(known)
            return False
        if kind is not CallKind.FORWARD:
            self._flat += (known, True, mark, None)
            return True
        if self.forward_watch is not None:
            self.forward_watch.begin()
        self._flat += (known, True, mark, batch_of(args, kwargs))
        return True

    def tell_label(self, label: str | None) -> str | None:
        """Forwards are called so from now on; returns what they were called before."""
        before = self.labels[-1][1] if self.labels else None
        self.labels.append((len(self._flat) // 4, label))
        return before

    def enter_unstaged(self, known: Known) -> bool:
        """As ``enter``, for what is in no stage of its own, an offload hook say: nobody is told."""
        mark = self.clock.mark()
        if mark is None:
            return False
        self._flat += (known, True, mark, None)
        if len(self._flat) >= self._settle_at:
            self._settle()
        return True

    def _settle(self) -> None:
        """Let go of events that the device has passed, where hooks on every layer make very many."""
        flat = self._flat
        end = len(flat) - SETTLE_EVERY // 2  # the device is behind: the newest are left alone
        places = [place for place in range(self._settled + 2, end, 4) if flat[place] is not None]
        origin = self.start if self._settled == 0 else flat[self._bridge]
        settled = self.clock.settle([origin, *(flat[place] for place in places)]) if places else None
        if settled is not None:
            if self._settled == 0:
                self.start = settled[0]
            else:
                flat[self._bridge] = settled[0]
            for place, mark in zip(places, settled[1:], strict=True):
                flat[place] = mark
                detail = flat[place + 1]
                if hasattr(detail, "settled"):
                    flat[place + 1] = detail.settled(self.clock)
            self._settled, self._bridge = places[-1] + 2, places[-1]
        self._settle_at = len(flat) + SETTLE_EVERY

    def leave(self, known: Known, detail: Any = None) -> None:
        """Note that it ended, however it ended."""
        self._flat += (known, False, self.clock.mark(), detail)
        if self.ranges is not None:
            self.ranges.after(known)
        if self.forward_watch is not None and known.kind is CallKind.FORWARD:
            self.forward_watch.end()

    def take_in(self, table: dict[int, Methods], by_class: dict[type, Methods]) -> None:
        """Know these parts too: a pipeline is called inside a call that is not its own."""
        self._table.update(table)
        self._by_class.update(by_class)

    def rest(self) -> None:
        """The pipeline leaves the thread to something else; ``wake`` ends this."""
        self._resting_since = self.clock.now_ns()
        self._flat += (PAUSE, True, self.clock.mark(), None)

    def wake(self, reason: str) -> None:
        """It has the thread again; what lay between is a pause."""
        self.pauses.append(
            Pause(reason=reason, host_start_ns=self._resting_since, host_end_ns=self.clock.now_ns())
        )
        self._flat += (PAUSE, False, self.clock.mark(), None)

    def pause(self, reason: str, work: Callable[[], None]) -> None:
        """Do ``work`` (starting or stopping a profiler) outside every segment.

        The device is drained first, so that nothing launched before runs while the profiler changes state;
        that wait is the pipeline's own time and not part of the pause.
        """
        self._flat += (PAUSE, True, self.clock.mark(), None)
        self.clock.synchronise()
        begin = self.clock.now_ns()
        try:
            work()
        finally:
            self.pauses.append(Pause(reason=reason, host_start_ns=begin, host_end_ns=self.clock.now_ns()))
            self._flat += (PAUSE, False, self.clock.mark(), None)


def current_stream(device: str | None) -> int | None:
    """Torch's number of the stream that is current on a device; None on the host."""
    import torch

    kind = (device or "cpu").partition(":")[0]
    if kind not in {"cuda", "xpu"} or not getattr(torch, kind).is_available():
        return None
    return int(getattr(torch, kind).current_stream(device).stream_id)


def batch_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """First dimension of the first tensor (or length of the first list of tensors) a denoiser was given."""
    for value in (*args[:1], *kwargs.values()):
        shape = getattr(value, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 1
        if isinstance(value, (list, tuple)) and value and hasattr(value[0], "shape"):
            return len(value)
    return None


ACTIVE: ContextVar[ActiveCall | None] = ContextVar("stepscope_active_call", default=None)
"""The observed call that this thread and context are in. Two sessions in two threads never see each other."""


def make_wrapper(original: Callable[..., Any], attribute: str) -> Callable[..., Any]:
    """The function that stands in a class for ``original``: notes the call if it is a known one."""
    import torch

    is_compiling = torch.compiler.is_compiling

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():  # constant for torch.compile: it sees the original only, no break and no guard
            return original(self, *args, **kwargs)
        call = ACTIVE.get()
        if call is None:
            return original(self, *args, **kwargs)
        known = call.known(self, attribute)
        if known is None or not call.enter(known, args, kwargs):
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            call.leave(known)

    return observed


def make_instance_wrapper(instance: Any) -> Callable[[Callable[..., Any], str], Callable[..., Any]]:
    """As ``make_wrapper``, for an attribute that somebody set on the instance: it is called without self."""

    def make(original: Callable[..., Any], attribute: str) -> Callable[..., Any]:
        def unbound(_self: Any, *args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs)

        observed = make_wrapper(unbound, attribute)

        def bound(*args: Any, **kwargs: Any) -> Any:
            return observed(instance, *args, **kwargs)

        return bound

    return make
