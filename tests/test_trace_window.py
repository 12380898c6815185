"""The trace window: the right steps are recorded, whatever was asked and however many there are."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pipelines
from observing import gaps, observe
from stepscope.capture.window import timestep_count
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.observe import TraceRequest
from traced_calls import events_of, trace


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
    """What is in no stage is around the pauses, which the first and last steps' spans leave out."""
    run = trace(flux, 4, 2, tmp_path).run

    assert run.total_ns is not None
    assert run.ends is not None
    for (start, end), pause in zip(gaps(run), run.pauses, strict=True):
        assert start <= pause.host_start_ns < pause.host_end_ns <= end
    for part in (part for step in run.steps for part in step.span.segments):
        assert not any(
            part.host_start_ns < pause.host_end_ns and pause.host_start_ns < part.host_end_ns
            for pause in run.pauses
        )
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


@pytest.mark.parametrize("stopped", [False, True])
def test_an_interrupt_while_the_profiler_stops_is_an_interrupt(
    flux: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    """Before torch has its events or after: the call ends by it, is kept, and no profiler stays at work."""
    from torch.autograd import profiler

    disable = profiler._disable_profiler

    def interrupted() -> Any:
        monkeypatch.undo()
        if stopped:
            disable()
        raise KeyboardInterrupt

    monkeypatch.setattr(profiler, "_disable_profiler", interrupted)
    observed = trace(flux, 4, 2, tmp_path)
    assert isinstance(observed.error, KeyboardInterrupt)
    assert not torch.autograd._profiler_enabled()
    assert not profiler._is_profiler_enabled
    assert len(observed.run.steps) == 3
    assert (observed.raw_trace is None) is stopped
    if stopped:
        assert any("interrupted while it stopped" in warning for warning in observed.run.warnings)
    else:
        assert events_of(observed)
