"""The device clock: asynchronous work is charged to what launched it, without waiting for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

import pipelines
from observing import observe, stage_names
from stepscope.capture import active
from stepscope.capture.clock import NS_PER_MS, EventClock, JointClock, SynchronisedHostClock
from stepscope.capture.components import Known
from stepscope.capture.devices import clock_for, self_test
from stepscope.capture.fake import FakeDevice, FakeDeviceClock
from stepscope.model.recording import CallKind
from stepscope.model.vocabulary import ClockKind, TraceDetail
from stepscope.session.observe import TraceRequest

MS = NS_PER_MS


class Launching:
    """Parts of a pipeline that give a fake device work and return at once."""

    class Denoiser(torch.nn.Module):
        def __init__(self, device: FakeDevice, ms: float) -> None:
            super().__init__()
            self.device, self.ms = device, ms

        def forward(self, sample: Any, timestep: int) -> Any:
            self.device.work(ms=1)
            self.device.launch(self.ms)
            return sample

    class Decoder(torch.nn.Module):
        def __init__(self, device: FakeDevice, ms: float) -> None:
            super().__init__()
            self.device, self.ms = device, ms

        def encode(self, sample: Any) -> Any:
            return sample

        def decode(self, sample: Any) -> Any:
            self.device.work(ms=2)
            self.device.launch(self.ms)
            return sample


def launching_pipeline(device: FakeDevice) -> Any:
    return pipelines.toy(
        transformer=Launching.Denoiser(device, ms=100), vae=Launching.Decoder(device, ms=400)
    )


def generate(pipeline: Any, steps: int) -> None:
    sample = torch.ones(2, 4)
    pipeline.scheduler.set_timesteps(steps)
    for step in range(steps):
        sample = pipeline.scheduler.step(pipeline.transformer(sample, step), sample)
    pipeline.vae.decode(sample)


def test_asynchronous_steps_have_the_devices_time() -> None:
    """The host issues ten steps in 10 ms; each took 100 ms on the device, and says so."""
    device = FakeDevice()
    clock = FakeDeviceClock(device)
    pipeline = launching_pipeline(device)

    run = observe(pipeline, lambda: generate(pipeline, 10), clock=clock).run

    assert [step.span.duration_ns for step in run.steps] == [101 * MS, *[100 * MS] * 9]
    assert [step.span.host_ns for step in run.steps] == [1 * MS] * 10
    decoding = run.stages[stage_names(run).index("DecodingStage")]
    assert (decoding.span.duration_ns, decoding.span.host_ns) == (400 * MS, 2 * MS)
    assert run.total_ns == 1401 * MS == sum(stage.span.duration_ns for stage in run.stages)


def test_the_three_ends_differ_where_the_device_is_behind() -> None:
    """The call returns long before the device is done."""
    device = FakeDevice()
    pipeline = launching_pipeline(device)

    run = observe(pipeline, lambda: generate(pipeline, 10), clock=FakeDeviceClock(device)).run

    assert run.ends is not None
    assert run.ends.returned_ns - run.ends.start_ns == 12 * MS
    assert run.ends.device_done_ns - run.ends.start_ns == 1401 * MS


def test_work_left_over_from_before_is_not_charged_to_the_run() -> None:
    """A run begins when the device has finished what it was given earlier."""
    device = FakeDevice()
    pipeline = launching_pipeline(device)
    device.launch(ms=5000)

    run = observe(pipeline, lambda: generate(pipeline, 1), clock=FakeDeviceClock(device)).run

    assert run.total_ns == 501 * MS


def test_nothing_is_recorded_while_a_graph_is_captured() -> None:
    """A call that begins under capture leaves no event; one that ends under it is merged into its parent."""
    device = FakeDevice()
    clock = FakeDeviceClock(device)
    pipeline = launching_pipeline(device)

    def call() -> None:
        device.capturing = True
        pipeline.transformer(torch.ones(1, 4), 0)
        device.capturing = False
        pipeline.scheduler.step(torch.ones(1, 4), torch.ones(1, 4))

    run = observe(pipeline, call, clock=clock).run

    assert [len(step.forwards) for step in run.steps] == [0]
    assert clock.recorded == 4  # start, end, and both ends of the scheduler's step


def test_no_profiler_is_started_while_a_graph_is_captured(tmp_path: Path) -> None:
    """Starting one waits for the device, which would break the capture: it starts with the next forward."""
    device = FakeDevice()
    pipeline = launching_pipeline(device)

    def call() -> None:
        device.capturing = True
        pipeline.transformer(torch.ones(1, 4), 0)
        device.capturing = False
        generate(pipeline, 2)

    request = TraceRequest(steps=1, scratch_dir=tmp_path, detail=TraceDetail.OPS)
    observed = observe(pipeline, call, clock=FakeDeviceClock(device), trace=request)

    assert [pause.reason for pause in observed.run.pauses] == ["profiler start", "profiler stop"]
    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == (1,)


def test_every_event_is_given_back() -> None:
    """A long-lived process does not collect events: all of a run's are free for the next."""
    device = FakeDevice()
    clock = FakeDeviceClock(device)
    pipeline = launching_pipeline(device)

    for _ in range(3):
        observe(pipeline, lambda: generate(pipeline, 5), clock=clock)

    assert clock.held == 0


def test_parts_on_two_devices_are_timed_on_both() -> None:
    """A mark is reached when every device has reached it: work counts for its own stage wherever it ran."""
    first, second = FakeDevice(), FakeDevice()
    clocks = [FakeDeviceClock(first), FakeDeviceClock(second)]
    pipeline = pipelines.toy(
        transformer=Launching.Denoiser(first, ms=100), vae=Launching.Decoder(second, ms=400)
    )

    def call() -> None:
        pipeline.transformer(torch.ones(1, 4), 0)
        pipeline.scheduler.step(torch.ones(1, 4), torch.ones(1, 4))
        first.synchronise()  # the copy to the second device
        second.host_ns = first.host_ns
        pipeline.vae.decode(torch.ones(1, 4))

    run = observe(pipeline, call, clock=JointClock(clocks)).run

    assert {stage.span.name: stage.span.duration_ns // MS for stage in run.stages} == {
        "DenoisingStage": 101,
        "DecodingStage": 402,
    }
    assert [clock.held for clock in clocks] == [0, 0]


class FakeEvents:
    """A backend whose events tell float32 milliseconds, like CUDA's; ``speed`` 1 is true."""

    device = "fake:0"

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.made = 0
        self.waits = 0

    class Event:
        def __init__(self, backend: FakeEvents) -> None:
            self.backend, self.at = backend, 0

        def query(self) -> bool:
            return True

        def elapsed_time(self, other: FakeEvents.Event) -> float:
            milliseconds = (other.at - self.at) / 1e6 * self.backend.speed
            return float(torch.tensor(milliseconds, dtype=torch.float32))

    def new_event(self) -> Event:
        self.made += 1
        return FakeEvents.Event(self)

    def record(self, event: Event, stream: Any) -> None:
        self.last = event.at = time.perf_counter_ns()

    def capturing(self) -> bool:
        return False

    def synchronise(self) -> None:
        self.waits += 1


def test_events_are_pooled() -> None:
    """Marking, resolving and releasing again and again makes no new events."""
    backend = FakeEvents()
    clock = EventClock(backend, "test")

    for _ in range(5):
        marks = [mark for mark in (clock.mark() for _ in range(10)) if mark is not None]
        assert len(clock.resolve(marks)) == 10
        clock.release(marks)

    assert backend.made == 10


def test_a_call_with_very_many_marks_goes_on_with_few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks on every layer make hundreds of thousands: passed ones are settled, and no time changes by it."""
    monkeypatch.setattr(active, "SETTLE_EVERY", 4 * 64)
    backend = FakeEvents()
    call = active.ActiveCall(EventClock(backend, "test"), {}, {})
    mark = call.clock.mark()
    assert mark is not None
    call.start = mark
    known = Known(CallKind.TRANSFER, "offload", "")
    stamps = [mark[1].at]
    for _ in range(5000):
        call.enter_unstaged(known)
        call.leave(known)
        stamps.append(backend.last)

    marks = [call.start, *(mark for _, _, mark, _ in call.events if mark is not None)]
    resolved = call.clock.resolve(marks)

    assert backend.made < 1000
    assert len(resolved) == 10_001
    expected = [stamp - stamps[0] for stamp in stamps[1:]]
    assert all(abs(got - want) < 1000 for got, want in zip(resolved[2::2], expected, strict=True))


def test_float32_events_are_summed_pairwise() -> None:
    """A float32 of an hour in milliseconds is off by a quarter of one; neighbours' differences are not."""
    backend = FakeEvents()
    clock = EventClock(backend, "test")
    marks = [mark for mark in (clock.mark() for _ in range(3601)) if mark is not None]
    for index, (_, event) in enumerate(marks):
        event.at = index * 1_000_000_123

    resolved = clock.resolve(marks)

    assert abs(resolved[-1] - 3600 * 1_000_000_123) < 500_000
    direct = round(marks[0][1].elapsed_time(marks[-1][1]) * 1e6)
    assert abs(resolved[-1] - 3600 * 1_000_000_123) <= abs(direct - 3600 * 1_000_000_123) + 500_000


def test_a_true_clock_passes_the_self_test_and_a_false_one_does_not() -> None:
    """Events that run slow, backwards or not at all are found out by a known wait."""

    class Broken(FakeEvents):
        def new_event(self) -> Any:
            raise RuntimeError("no timing events")

    assert self_test(FakeEvents()) is None
    assert "ms of a wait of" in (self_test(FakeEvents(speed=0.1)) or "")
    assert "ms of a wait of" in (self_test(FakeEvents(speed=-1)) or "")
    assert self_test(Broken()) == "events failed: no timing events"


def test_a_true_clock_passes_on_a_busy_machine() -> None:
    """The CPU is taken from us once, between the host's reading and the second event."""

    class Disturbed(FakeEvents):
        recorded = 0

        def record(self, event: Any, stream: Any) -> None:
            self.recorded += 1
            if self.recorded == 2:
                time.sleep(0.02)
            super().record(event, stream)

    assert self_test(Disturbed()) is None


def test_an_untrusted_device_is_synchronised_and_said_to_be() -> None:
    """Every mark waits for the device, and the run's clock says why."""
    backend = FakeEvents()
    clock = SynchronisedHostClock(backend, "events told 2 ms of a wait of 20 ms")
    pipeline = pipelines.toy()

    run = observe(pipeline, lambda: generate(pipeline, 2), clock=clock).run

    assert run.clock.kind is ClockKind.SYNCHRONISED_HOST
    assert not run.clock.trusted
    assert backend.waits >= 10


def test_the_cpu_is_timed_by_the_host() -> None:
    """No device events where there is no device."""
    assert clock_for(torch.device("cpu")).description.kind is ClockKind.HOST
    assert clock_for(torch.device("meta", 0)).description.kind is not ClockKind.DEVICE_EVENTS
