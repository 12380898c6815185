"""Events of each kind of device torch has, and the self-test that decides whether they can be trusted."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from stepscope.capture.clock import DeviceClock, EventBackend, EventClock, HostClock, SynchronisedHostClock
from stepscope.model.run import Clock
from stepscope.model.vocabulary import ClockKind

EVENT_DEVICES = frozenset({"cuda", "xpu", "mps"})
"""Kinds of device whose events are known here. ROCm calls itself cuda."""

SELF_TEST_WAIT_S = 0.02
SELF_TEST_TOLERANCE = 0.15
"""How far the events around the wait may be from the host's own reading; sleeping is exact to about 1 %."""
SELF_TEST_TRIES = 3
"""On a busy machine the CPU may be taken from us beside the wait: only a false clock fails always."""


class StreamEvents:
    """CUDA, ROCm and XPU: ``torch.cuda`` and ``torch.xpu`` share the interface."""

    def __init__(self, kind: str, index: int) -> None:
        import torch

        self._module = getattr(torch, kind)
        self._index = index
        self.device = f"{kind}:{index}"
        self.capturing: Callable[[], bool] = getattr(self._module, "is_current_stream_capturing", _never)

    def new_event(self) -> Any:
        return self._module.Event(enable_timing=True)

    def record(self, event: Any, stream: Any) -> None:
        event.record(self._module.current_stream(self._index) if stream is None else stream)

    def synchronise(self) -> None:
        self._module.synchronize(self._index)


class MpsEvents:
    """Apple's Metal: one stream, events of its own."""

    device = "mps:0"

    def __init__(self) -> None:
        import torch

        self._module = torch.mps

    def new_event(self) -> Any:
        return self._module.Event(enable_timing=True)

    def record(self, event: Any, stream: Any) -> None:  # noqa: ARG002  Metal has one
        event.record()

    def capturing(self) -> bool:
        return False

    def synchronise(self) -> None:
        self._module.synchronize()


def _never() -> bool:
    return False


def self_test(backend: EventBackend) -> str | None:
    """Put two events around a known wait; say what is wrong with what they tell, or None if nothing is."""
    wrong = None
    for _ in range(SELF_TEST_TRIES):
        wrong = _wrong_with_one_wait(backend)
        if wrong is None:
            return None
    return wrong


def _wrong_with_one_wait(backend: EventBackend) -> str | None:
    try:
        first, second = backend.new_event(), backend.new_event()
        backend.synchronise()
        backend.record(first, None)
        backend.synchronise()
        begin = time.perf_counter_ns()
        time.sleep(SELF_TEST_WAIT_S)
        host_ms = (time.perf_counter_ns() - begin) / 1e6
        backend.record(second, None)
        backend.synchronise()
        device_ms = float(first.elapsed_time(second))
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        return f"events failed: {error}"
    if abs(device_ms - host_ms) > SELF_TEST_TOLERANCE * host_ms:
        return f"events told {device_ms:.3f} ms of a wait of {host_ms:.3f} ms"
    return None


@functools.lru_cache(maxsize=16)
def _verdict(kind: str, index: int) -> str | None:
    return self_test(_backend(kind, index))


def _backend(kind: str, index: int) -> EventBackend:
    return MpsEvents() if kind == "mps" else StreamEvents(kind, index)


def clock_device(device: Any) -> Any:
    """The device with its number: ``cuda`` alone means the current one."""
    import torch

    if device.index is not None or device.type not in {"cuda", "xpu"}:
        return device
    return torch.device(device.type, getattr(torch, device.type).current_device())


def clock_for(device: Any) -> DeviceClock:
    """The clock for work on ``device`` (a ``torch.device``); the self-test runs once a process and device.

    A device of a kind that has no events here is timed by the host and said to be untrusted.
    """
    kind = device.type
    if kind in {"cpu", "meta"}:
        return HostClock()
    if kind not in EVENT_DEVICES:
        return HostClock(
            Clock(kind=ClockKind.HOST, self_test=f"no clock for devices of kind {kind!r}", trusted=False)
        )
    index = clock_device(device).index or 0
    problem = _verdict(kind, index)
    backend = _backend(kind, index)
    if problem is not None:
        return SynchronisedHostClock(backend, problem)
    return EventClock(backend, f"passed: two events around {SELF_TEST_WAIT_S * 1e3:.0f} ms")
