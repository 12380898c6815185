"""The device clock: where durations come from.

A mark is taken inside the user's loop and must cost next to nothing, so it is a bare tuple; device events
behind it are resolved after the run, in one go, without a synchronisation in between (design, rule 1).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stepscope.model.run import Clock
from stepscope.model.vocabulary import ClockKind

Mark = tuple[int, Any]
"""``(perf_counter_ns, device event or None)``."""

NS_PER_MS = 1_000_000


class DeviceClock(Protocol):
    """Takes marks and tells the device time between them."""

    description: Clock
    device: str | None

    def now_ns(self) -> int:
        """The host's own reading (``time.perf_counter_ns``)."""
        ...

    def mark(self, stream: Any = None) -> Mark | None:
        """Mark this moment in ``stream`` (the current one by default); None while a graph is captured."""
        ...

    def resolve(self, marks: Sequence[Mark]) -> list[int | None]:
        """Device nanoseconds of each mark since the first, after ``synchronise``; None: no device time."""
        ...

    def release(self, marks: Iterable[Mark]) -> None:
        """Give the marks' events back for reuse."""
        ...

    def settle(self, marks: Sequence[Mark]) -> list[Mark] | None:
        """The first marks of a call without their events, if the device has reached the last; else None.

        Lets a call with very many marks go on with few events. ``resolve`` takes settled marks as well.
        """
        ...

    def synchronise(self) -> None:
        """Wait until the device has done all it was given."""
        ...


class HostClock:
    """The host's clock, right where the host does the work: CPU runs."""

    def __init__(self, description: Clock | None = None) -> None:
        self.device: str | None = None
        self.description = description or Clock(
            kind=ClockKind.HOST, self_test="not needed: the host does the work"
        )
        self.now_ns = time.perf_counter_ns

    def mark(self, stream: Any = None) -> Mark | None:  # noqa: ARG002  one signature for all clocks
        return (self.now_ns(), None)

    def resolve(self, marks: Sequence[Mark]) -> list[int | None]:
        return [None] * len(marks)

    def release(self, marks: Iterable[Mark]) -> None:
        """Nothing is held."""

    def settle(self, marks: Sequence[Mark]) -> list[Mark] | None:  # noqa: ARG002
        return None

    def synchronise(self) -> None:
        """The host is never ahead of itself."""


class EventBackend(Protocol):
    """What one kind of device needs to record events. Implementations are in ``capture.devices``."""

    device: str

    def new_event(self) -> Any: ...

    def record(self, event: Any, stream: Any) -> None: ...

    def capturing(self) -> bool: ...

    def synchronise(self) -> None: ...


class SynchronisedHostClock(HostClock):
    """For devices whose events cannot be trusted: wait for the device, then read the host's clock."""

    def __init__(self, backend: EventBackend, reason: str) -> None:
        super().__init__(Clock(kind=ClockKind.SYNCHRONISED_HOST, self_test=reason, trusted=False))
        self.device = backend.device
        self._backend = backend

    def mark(self, stream: Any = None) -> Mark | None:  # noqa: ARG002
        if self._backend.capturing():
            return None
        self._backend.synchronise()
        return (self.now_ns(), None)

    def synchronise(self) -> None:
        self._backend.synchronise()


@dataclass(frozen=True, slots=True)
class Settled:
    """What is left of an event whose time is known. The last one keeps its event for what comes after it."""

    device_ns: int
    bridge: Any = None


def _raw(event: Any) -> Any:
    return event.bridge if isinstance(event, Settled) else event


class EventClock:
    """Device events, recorded in the stream that is current at each mark."""

    def __init__(self, backend: EventBackend, self_test: str) -> None:
        self.description = Clock(kind=ClockKind.DEVICE_EVENTS, self_test=self_test)
        self.device: str | None = backend.device
        self.now_ns = time.perf_counter_ns
        self._backend = backend
        self._free: list[Any] = []

    def mark(self, stream: Any = None) -> Mark | None:
        backend = self._backend
        if backend.capturing():
            return None
        event = self._free.pop() if self._free else backend.new_event()
        backend.record(event, stream)
        return (self.now_ns(), event)

    def resolve(self, marks: Sequence[Mark]) -> list[int | None]:
        """Sum the elapsed times of neighbouring events in float64: each is a float32 of milliseconds."""
        resolved: list[int | None] = []
        elapsed_ms = 0.0
        previous = None
        for _, event in marks:
            if event is None:
                resolved.append(None)
                continue
            if isinstance(event, Settled):
                elapsed_ms, previous = event.device_ns / NS_PER_MS, event.bridge
            else:
                elapsed_ms += 0.0 if previous is None else previous.elapsed_time(event)
                previous = event
            resolved.append(round(elapsed_ms * NS_PER_MS))
        return resolved

    def release(self, marks: Iterable[Mark]) -> None:
        events = (_raw(event) for _, event in marks)
        self._free.extend(event for event in events if event is not None)

    def settle(self, marks: Sequence[Mark]) -> list[Mark] | None:
        last = _raw(marks[-1][1])
        if last is None or not last.query():
            return None
        settled: list[Mark] = [
            (host_ns, None if device_ns is None else Settled(device_ns))
            for (host_ns, _), device_ns in zip(marks, self.resolve(marks), strict=True)
        ]
        self.release(marks[:-1])
        device_ns = settled[-1][1].device_ns
        settled[-1] = (settled[-1][0], Settled(device_ns, bridge=last))  # the next event is timed against it
        return settled

    def synchronise(self) -> None:
        self._backend.synchronise()


class JointClock:
    """For a pipeline whose parts lie on several devices: a mark is reached when all of them have reached it.

    Each device counts from the first mark, before which all were waited for, so that they agree there to the
    few microseconds that recording one event after the other takes.
    """

    def __init__(self, clocks: Sequence[DeviceClock]) -> None:
        self._clocks = tuple(clocks)
        self._first = self._clocks[0]
        self.description = self._first.description
        self.device = self._first.device
        self.now_ns = self._first.now_ns

    def mark(self, stream: Any = None) -> Mark | None:
        if stream is not None:
            return self._first.mark(stream)
        marks = [clock.mark() for clock in self._clocks]
        return None if None in marks else (self.now_ns(), tuple(marks))

    def resolve(self, marks: Sequence[Mark]) -> list[int | None]:
        if any(not isinstance(event, tuple) for _, event in marks):  # of one stream: the first clock's own
            return self._first.resolve(marks)
        columns = [
            clock.resolve([joint[index] for _, joint in marks]) for index, clock in enumerate(self._clocks)
        ]
        return [
            None if None in row else max(at for at in row if at is not None)
            for row in zip(*columns, strict=True)
        ]

    def release(self, marks: Iterable[Mark]) -> None:
        for host_ns, event in marks:
            if isinstance(event, tuple):
                for clock, mark in zip(self._clocks, event, strict=True):
                    clock.release([mark])
            else:
                self._first.release([(host_ns, event)])

    def settle(self, marks: Sequence[Mark]) -> list[Mark] | None:  # noqa: ARG002  rare, and never that long
        return None

    def synchronise(self) -> None:
        for clock in self._clocks:
            clock.synchronise()
