"""A simulated device, shipped so that timing code can be tested without one, exactly and in no time.

device = FakeDevice()
clock = FakeDeviceClock(device)
device.launch(ms=100)   # returns at once: the device is busy for 100 ms from when it is free
device.work(ms=1)       # the host is busy for 1 ms
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stepscope.capture.clock import NS_PER_MS, Mark
from stepscope.model.run import Clock
from stepscope.model.vocabulary import ClockKind


class FakeDevice:
    """A host and a device with one stream, in simulated nanoseconds."""

    def __init__(self) -> None:
        self.host_ns = 1_000_000_000
        self.free_ns = 0  # when the device will have done what it was given
        self.capturing = False

    def work(self, ms: float) -> None:
        """The host computes; the device goes on with what it has."""
        self.host_ns += round(ms * NS_PER_MS)

    def launch(self, ms: float) -> None:
        """Give the device work without waiting for it."""
        self.free_ns = max(self.free_ns, self.host_ns) + round(ms * NS_PER_MS)

    def synchronise(self) -> None:
        self.host_ns = max(self.host_ns, self.free_ns)


class FakeDeviceClock:
    """The clock of a ``FakeDevice``; ``recorded`` counts events, for tests of what must not be recorded."""

    def __init__(self, device: FakeDevice) -> None:
        self.description = Clock(kind=ClockKind.DEVICE_EVENTS, self_test="simulated")
        self.device: str | None = "fake:0"
        self.fake = device
        self.recorded = 0
        self.held = 0  # events not yet given back

    def now_ns(self) -> int:
        return self.fake.host_ns

    def mark(self, stream: Any = None) -> Mark | None:
        """An event is done when the device has done what it was given; a ``FakeDevice`` is a stream."""
        device = self.fake if stream is None else stream
        if device.capturing:
            return None
        self.recorded += 1
        self.held += 1
        return (self.fake.host_ns, max(device.free_ns, self.fake.host_ns))

    def resolve(self, marks: Sequence[Mark]) -> list[int | None]:
        return [None if event is None else event - marks[0][1] for _, event in marks]

    def release(self, marks: Iterable[Mark]) -> None:
        self.held -= sum(1 for _, event in marks if event is not None)

    def settle(self, marks: Sequence[Mark]) -> list[Mark] | None:  # noqa: ARG002  a number holds nothing
        return None

    def synchronise(self) -> None:
        self.fake.synchronise()
