"""Other profilers in the process: torch has one at a time, and ours makes way for theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipelines
from observing import observe
from stepscope.capture import one_profiler, profiler
from stepscope.capture.active import ACTIVE
from stepscope.capture.fake import FakeDevice, FakeDeviceClock
from stepscope.session.keep_trace import TraceToKeep, keep_trace
from stepscope.session.observe import ObservedCall, Switching
from traced_calls import trace, trace_sd


def test_a_second_profiler_is_not_started(flux: Any, tmp_path: Path) -> None:
    """Where the user's own profiler records, there is a warning instead of a trace, and theirs goes on."""
    import torch

    with torch.profiler.profile() as theirs:
        observed = trace(flux, 2, 1, tmp_path)

    assert observed.raw_trace is None
    assert "another torch.profiler is already recording" in observed.run.warnings[0]
    assert theirs.events()


def test_a_profiler_that_waits_for_its_turn_is_not_disturbed(sd: Any, tmp_path: Path) -> None:
    """In a schedule's warm-up torch says of no profiler that it is at work; a second one ends the process."""
    import torch

    cycles = torch.profiler.schedule(wait=1, warmup=1, active=1)
    recorded: list[int] = []
    traced = []
    with torch.profiler.profile(
        schedule=cycles, on_trace_ready=lambda theirs: recorded.append(len(theirs.events()))
    ) as theirs:
        for _ in range(3):
            observed = trace_sd(sd, 2, 1, tmp_path)
            traced.append(observed.raw_trace is not None)
            theirs.step()

    assert traced == [True, False, False]
    assert recorded[0] > 100
    assert trace_sd(sd, 2, 1, tmp_path).raw_trace is not None


@pytest.mark.parametrize("switching", list(Switching))
def test_a_profiler_that_begins_in_a_traced_call_comes_first(
    sd: Any, tmp_path: Path, switching: Switching
) -> None:
    """Theirs records what it was started for; ours keeps the whole steps until then, and says so."""
    import torch

    theirs = torch.profiler.profile()

    def callback(_: Any, step: int, *__: Any) -> dict[str, Any]:
        if step == 2:
            theirs.start()
        if step == 3:
            theirs.stop()
        return {}

    observed = trace_sd(sd, 6, 5, tmp_path, switching=switching, callback_on_step_end=callback)

    assert theirs.events()
    assert observed.error is None
    if switching is Switching.WHOLE:
        assert observed.raw_trace is None
        assert "no trace: another torch.profiler began" in observed.run.warnings[0]
    else:
        assert observed.raw_trace is not None
        assert observed.raw_trace.steps == (1, 2)
        assert "another torch.profiler began after 3 steps: the trace ends there" in observed.run.warnings
        keep_trace(TraceToKeep(observed=observed, run=observed.run, directory=tmp_path))


def test_a_profiler_of_another_thread_gets_its_turn(sd: Any, tmp_path: Path) -> None:
    """It waits until ours has made way, at the next call that we know of."""
    import torch

    theirs = torch.profiler.profile()
    worker = threading.Thread(target=lambda: (theirs.start(), torch.ones(3).cos(), theirs.stop()))

    def callback(_: Any, step: int, *__: Any) -> dict[str, Any]:
        if step == 2:
            worker.start()
            _wait_until(lambda: one_profiler._holders[0].wanted)
        return {}

    observed = trace_sd(sd, 6, 5, tmp_path, callback_on_step_end=callback)
    worker.join()

    assert "aten::cos" in {event.name for event in theirs.events()}
    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == (1, 2)


def test_living_objects_are_looked_at_before_the_call_and_not_in_it(
    sd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an engine's worker that takes 0.2 s, which would be a pause in the middle of the request."""
    looked: list[bool] = []

    def warming_up() -> bool:
        looked.append(ACTIVE.get() is not None)
        return one_profiler.warming_up()

    monkeypatch.setattr(profiler, "warming_up", warming_up)
    observed = trace_sd(sd, 4, 2, tmp_path, switching=Switching.PAUSE)

    assert observed.raw_trace is not None
    assert looked == [False]


def test_of_two_calls_at_once_one_is_traced(tmp_path: Path) -> None:
    """Requests of a server's pool: torch has one profiler a process, and two at once end it."""
    pair = [pipelines.stable_diffusion(), pipelines.stable_diffusion()]
    pipelines.sd(pair[0], 1)  # what it imports late, two threads must not import at once: diffusers' own race
    barrier = threading.Barrier(2)
    found: list[ObservedCall] = []

    def callback(_: Any, step: int, *__: Any) -> dict[str, Any]:
        if step == 1:
            barrier.wait()
        return {}

    def work(pipeline: Any) -> None:
        found.append(trace_sd(pipeline, 4, 2, tmp_path / str(id(pipeline)), callback_on_step_end=callback))

    threads = [threading.Thread(target=work, args=(pipeline,)) for pipeline in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(observed.raw_trace is not None for observed in found) == [False, True]
    untraced = next(observed for observed in found if observed.raw_trace is None)
    assert "no trace: another call is being traced" in untraced.run.warnings[0]
    assert len(untraced.run.steps) == 4


def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


@pytest.mark.parametrize("torn_down", ["", "1"])
def test_a_call_after_a_traced_one_says_that_cupti_is_still_attached(
    flux: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn_down: str
) -> None:
    """On an H200 each launch of a process that was profiled costs 2 µs more, unless CUPTI is torn down."""
    monkeypatch.setattr(profiler, "_started_on", set())
    monkeypatch.setenv("TEARDOWN_CUPTI", torn_down)
    before = observe(flux, lambda: pipelines.flux_call(flux, 2), clock=on_cuda())
    traced = trace(flux, 2, 1, tmp_path, clock=on_cuda())
    after = observe(flux, lambda: pipelines.flux_call(flux, 2), clock=on_cuda())
    on_a_cpu = observe(flux, lambda: pipelines.flux_call(flux, 2))

    assert [profiler.ATTACHED in call.run.warnings for call in (before, traced, after, on_a_cpu)] == [
        False,
        False,
        torn_down == "",
        False,
    ]


def on_cuda() -> FakeDeviceClock:
    """A simulated clock that says it is a CUDA device's."""
    clock = FakeDeviceClock(FakeDevice())
    clock.device = "cuda:0"
    return clock
