"""How the profiler is kept to the window: paused, switched, or recording throughout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from observing import observe
from stepscope.model.vocabulary import TraceDetail
from stepscope.record.kineto.reader import read_kineto
from stepscope.session.keep_trace import TraceToKeep, keep_trace
from stepscope.session.observe import Switching, TraceRequest
from traced_calls import events_of, trace, trace_sd


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
