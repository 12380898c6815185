"""The trace window: the right steps are recorded, whatever was asked and however many there are."""

from __future__ import annotations

import json
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from stepscope.capture import one_profiler, profiler
from stepscope.capture.active import ACTIVE
from stepscope.capture.clock import DeviceClock
from stepscope.capture.fake import FakeDevice, FakeDeviceClock
from stepscope.capture.window import timestep_count
from stepscope.model.vocabulary import TraceDetail
from stepscope.record.kineto.reader import read_kineto
from stepscope.session.keep_trace import TraceToKeep, keep_trace
from stepscope.session.observe import ObservedCall, Switching, TraceRequest
from test_observe import observe


@pytest.fixture(scope="module")
def flux() -> Any:
    return pipelines.flux()


@pytest.fixture(scope="module")
def sd() -> Any:
    return pipelines.stable_diffusion()


def trace(
    pipeline: Any, steps: int, asked: int, folder: Path, *, clock: DeviceClock | None = None, **request: Any
) -> ObservedCall:
    wanted = TraceRequest(steps=asked, scratch_dir=folder, **request)
    return observe(pipeline, lambda: pipelines.flux_call(pipeline, steps), trace=wanted, clock=clock)


def trace_sd(pipeline: Any, steps: int, asked: int, folder: Path, **more: Any) -> ObservedCall:
    switching = more.pop("switching", None)
    wanted = TraceRequest(steps=asked, scratch_dir=folder, detail=TraceDetail.OPS, switching=switching)
    return observe(pipeline, lambda: pipelines.sd(pipeline, steps, **more), trace=wanted)


def events_of(observed: ObservedCall) -> list[dict[str, Any]]:
    assert observed.raw_trace is not None
    return json.loads(observed.raw_trace.path.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("steps", "asked", "held"),
    [
        (12, 5, range(1, 6)),
        (12, 1, range(1, 2)),
        (12, 12, range(1, 12)),
        (12, -1, range(12)),
        (12, 50, range(1, 12)),
        (12, 11, range(1, 12)),
        (4, 5, range(1, 4)),
        (2, 5, range(1, 2)),
        (1, 5, range(1)),
        (1, -1, range(1)),
    ],
)
def test_the_window_is_exact(flux: Any, tmp_path: Path, steps: int, asked: int, held: range) -> None:
    """Steps 1 to N; fewer where there are fewer; step 0 where it is alone; all for -1."""
    observed = trace(flux, steps, asked, tmp_path, detail=TraceDetail.OPS)

    assert observed.error is None
    assert len(observed.run.steps) == steps
    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == tuple(held)
    recorded = [step.index for step in observed.run.steps if step.traced]
    last = steps - 1 if asked == -1 else min(asked, steps - 1)
    assert recorded == list(range(last + 1))
    assert [step.index for step in observed.run.steps if step.profiler_warmup] == [0]
    assert [pause.reason for pause in observed.run.pauses] == ["profiler start", "profiler stop"]
    assert observed.run.outside[0].name == "TraceExport"


def test_the_export_holds_the_operators_of_the_wanted_steps(flux: Any, tmp_path: Path) -> None:
    """As many scheduler-sized pieces as steps were recorded, with shapes and Python frames."""
    one = events_of(trace(flux, 6, 1, tmp_path))
    three = events_of(trace(flux, 6, 3, tmp_path))

    def count(events: list[dict[str, Any]]) -> int:
        return sum(event["name"] == "aten::scaled_dot_product_attention" for event in events)

    assert count(three) == 2 * count(one) > 0  # steps 0 to 3 against steps 0 and 1
    assert any(event.get("cat") == "python_function" for event in three)
    assert any("Input Dims" in event.get("args", {}) for event in three)


def test_anchors_tie_the_trace_to_the_host_clock(flux: Any, tmp_path: Path) -> None:
    """All stepscope_anchor events lie at one offset from their readings, to well under a millisecond."""
    observed = trace(flux, 3, 2, tmp_path)
    starts = sorted(e["ts"] * 1e3 for e in events_of(observed) if e["name"] == "stepscope_anchor")
    assert observed.raw_trace is not None
    anchors = observed.raw_trace.anchors

    assert len(starts) == len(anchors) == 6
    offsets = [start - before for start, (before, _) in zip(starts, anchors, strict=True)]
    widths = [after - before for before, after in anchors]
    assert max(offsets) - min(offsets) < max(widths) + 1_000_000  # a wrong pairing is off by whole steps


def test_the_pause_is_in_no_stage_step_or_total(flux: Any, tmp_path: Path) -> None:
    """Stages sum to the total without the pauses, which the first and last steps' spans leave out."""
    run = trace(flux, 4, 2, tmp_path).run

    assert run.total_ns is not None
    stages = sum(stage.span.duration_ns for stage in run.stages)
    assert 0 <= run.total_ns - stages < 0.02 * run.total_ns
    assert run.ends is not None
    wall = run.ends.device_done_ns - run.ends.start_ns
    assert wall == run.total_ns + sum(pause.duration_ns for pause in run.pauses)
    cut = {step.index for step in run.steps if len(step.span.segments) > 1}
    assert cut == {0, 3}


def test_all_stages_are_recorded_when_asked(flux: Any, tmp_path: Path) -> None:
    """Text encoding and decoding are in the trace; the profiler starts and stops outside the call."""
    observed = trace(flux, 2, 5, tmp_path, all_stages=True, detail=TraceDetail.OPS)
    names = {event["name"] for event in events_of(observed)}

    assert {"aten::embedding", "aten::convolution"} <= names
    assert observed.run.pauses == ()
    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == (0, 1)


def test_decoding_is_not_recorded_when_steps_run_out(flux: Any, tmp_path: Path) -> None:
    """A few-step model asked for more steps than it has does not decode under the profiler."""
    names = {event["name"] for event in events_of(trace(flux, 2, 50, tmp_path))}

    assert "aten::convolution" not in names


def test_the_picture_is_the_same_under_the_profiler(flux: Any, tmp_path: Path) -> None:
    """Tracing changes no bit of the output."""
    assert np.array_equal(pipelines.flux_call(flux, 3), trace(flux, 3, 2, tmp_path).result)


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


@pytest.mark.parametrize("switching", [Switching.PAUSE, Switching.TOGGLE])
def test_a_preview_in_the_loop_does_not_end_the_window(sd: Any, tmp_path: Path, switching: Switching) -> None:
    """A callback that decodes after each step: the scheduler has timesteps left, so steps are to come."""

    def callback(pipeline: Any, _step: int, _timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        preview = pipeline.vae.decode(values["latents"], return_dict=False)[0]
        pipeline.image_processor.postprocess(preview.detach(), output_type="np")
        return {}

    observed = trace_sd(sd, 6, 3, tmp_path, switching=switching, callback_on_step_end=callback)

    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == (1, 2, 3)
    assert sum(stage.span.name == "DecodingStage" for stage in observed.run.stages) >= 6


@pytest.mark.parametrize(
    ("scheduler", "count"),
    [
        (types.SimpleNamespace(), 0),
        (types.SimpleNamespace(num_inference_steps=None, timesteps=range(1000)), 0),
        (types.SimpleNamespace(num_inference_steps=4), 0),
        (types.SimpleNamespace(num_inference_steps=4, timesteps=None), 0),
        (types.SimpleNamespace(num_inference_steps=4, timesteps=range(7)), 7),
    ],
)
def test_timesteps_are_those_that_were_set(scheduler: Any, count: int) -> None:
    """Those of training, before any were set, say nothing."""
    assert timestep_count(scheduler) == count


def test_denoisers_without_a_scheduler_are_counted_by_forwards(tmp_path: Path) -> None:
    """Where nothing steps, the window counts forwards, and the run says so."""
    import torch

    pipeline = pipelines.toy(scheduler=None)

    def call() -> None:
        for index in range(6):
            pipeline.transformer(torch.ones(2, 4), index)
        pipeline.vae.decode(torch.ones(2, 4))

    observed = observe(pipeline, call, trace=TraceRequest(steps=2, scratch_dir=tmp_path))

    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == (1, 2)
    assert len(observed.run.steps) == 6
    assert "each denoiser forward is counted as a step" in observed.run.warnings[0]


@pytest.mark.parametrize("switching", list(Switching))
def test_the_window_is_exact_however_the_profiler_is_kept_to_it(
    flux: Any, tmp_path: Path, switching: Switching
) -> None:
    """Paused, switched or recording throughout: the trace that is written holds steps 1 and 2."""
    observed = trace(flux, 5, 2, tmp_path, detail=TraceDetail.SOURCE, switching=switching)
    assert observed.raw_trace is not None
    window, _ = keep_trace(TraceToKeep(observed=observed, run=observed.run, directory=tmp_path))
    written = read_kineto(Path(window.path))
    attention = np.array([name == "aten::scaled_dot_product_attention" for name in written.names])

    assert window.steps == observed.raw_trace.steps == (1, 2)
    names = [written.names[name] for name in written.annotations.name]
    assert [name for name in names if name.startswith("denoising_step")] == [
        "denoising_step_1",
        "denoising_step_2",
    ]
    layers = len(flux.transformer.transformer_blocks) + len(flux.transformer.single_transformer_blocks)
    assert attention[written.operators.name].sum() == 2 * layers


def test_only_a_pause_stops_the_profiler_inside_the_call(flux: Any, tmp_path: Path) -> None:
    """A switched one is processed after the call; one that records throughout has no pause at all."""
    pauses = {
        switching: trace(flux, 4, 2, tmp_path, detail=TraceDetail.SOURCE, switching=switching).run.pauses
        for switching in Switching
    }

    assert [len(pauses[switching]) for switching in Switching] == [2, 2, 0]


def test_the_profiler_is_off_after_a_failed_call_however_it_was_kept(flux: Any, tmp_path: Path) -> None:
    """An exception in step 2: what was recorded is there, and nothing goes on recording."""
    import torch

    for switching in Switching:

        def fails(_pipeline: Any, index: int, _timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            if index == 2:
                raise ValueError("stop here")
            return tensors

        wanted = TraceRequest(steps=5, scratch_dir=tmp_path, detail=TraceDetail.SOURCE, switching=switching)
        observed = observe(
            flux, lambda fails=fails: pipelines.flux_call(flux, 5, callback_on_step_end=fails), trace=wanted
        )
        assert isinstance(observed.error, ValueError)
        assert not torch.autograd._profiler_enabled()
        assert observed.raw_trace is not None
        assert observed.raw_trace.steps[0] == 1


def chunks(pipeline: Any) -> None:
    """Video made in chunks: each denoised in two steps and decoded before the next begins."""
    import torch

    sample = torch.ones(1, 4)
    for _chunk in range(3):
        pipeline.scheduler.set_timesteps(2)
        for step in range(2):
            sample = pipeline.scheduler.step(pipeline.transformer(sample, step), sample)
        pipeline.vae.decode(sample)


def test_all_steps_of_a_chunked_video_are_traced_where_the_profiler_can_be_switched(tmp_path: Path) -> None:
    """-1 means all, also those after the first decoding, and the decodings are not recorded."""
    pipeline = pipelines.toy()
    wanted = TraceRequest(steps=-1, scratch_dir=tmp_path, detail=TraceDetail.OPS, switching=Switching.TOGGLE)

    observed = observe(pipeline, lambda: chunks(pipeline), trace=wanted)

    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == tuple(range(6))
    assert observed.run.warnings == ()
    linear = [event for event in events_of(observed) if event.get("name") == "aten::linear"]
    assert len(linear) == 6


def test_a_profiler_that_cannot_go_on_says_which_steps_it_misses(tmp_path: Path) -> None:
    """Paused at the first decoding it is off for good: a line says so, and only the first chunk is held."""
    pipeline = pipelines.toy()
    wanted = TraceRequest(steps=-1, scratch_dir=tmp_path, detail=TraceDetail.OPS, switching=Switching.PAUSE)

    observed = observe(pipeline, lambda: chunks(pipeline), trace=wanted)

    assert observed.raw_trace is not None
    assert observed.raw_trace.steps == (0, 1)
    assert [warning for warning in observed.run.warnings if "after the first decoding" in warning]


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
