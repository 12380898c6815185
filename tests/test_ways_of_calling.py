"""Callbacks, interrupts, two experts and two threads at once, each with a real tiny pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pipelines
import stepscope
from observing import observe, stage_names
from survey.build import TinyPipeline, build_pipeline
from survey.measure import digest
from survey.tables import PipelineEntry, pipeline_entries


def test_a_callback_changes_latents_and_is_in_its_step(sd: Any) -> None:
    """What it returns is used as without us. The iteration ends after it, with the progress bar."""
    called_ns: list[int] = []

    def callback(_pipeline: Any, _index: int, _timestep: Any, tensors: Any) -> dict[str, Any]:
        called_ns.append(time.perf_counter_ns())
        return {"latents": tensors["latents"] * 0.9}

    plain = pipelines.sd(sd, 4, callback_on_step_end=callback)
    called_ns.clear()
    call = observe(sd, lambda: pipelines.sd(sd, 4, callback_on_step_end=callback))

    assert np.array_equal(call.result, plain)
    assert not np.array_equal(call.result, pipelines.sd(sd, 4))
    assert len(call.run.steps) == 4
    begins = [step.span.segments[0].host_start_ns for step in call.run.steps]
    assert begins == sorted(begins)
    steps_of = [sum(begin <= at for begin in begins) - 1 for at in called_ns]
    assert steps_of == [0, 1, 2, 3]


def test_an_official_callback_that_ends_guidance_halves_the_batch(sd: Any) -> None:
    """diffusers' own SDCFGCutoffCallback: forwards after the cut-off are seen with one picture, not two."""
    from diffusers.callbacks import SDCFGCutoffCallback

    cutoff = SDCFGCutoffCallback(cutoff_step_ratio=None, cutoff_step_index=1)
    call = observe(sd, lambda: pipelines.sd(sd, 4, callback_on_step_end=cutoff))

    batches = [[forward.batch for forward in step.forwards] for step in call.run.steps]
    assert batches == [[2], [2], [1], [1]]


def test_an_interrupted_pipeline_has_the_steps_it_made(sd: Any) -> None:
    """``pipe._interrupt = True``: the loop runs empty, the picture is decoded, the run is whole."""

    def callback(pipeline: Any, index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        pipeline._interrupt = index == 1
        return {}

    plain = pipelines.sd(sd, 6, callback_on_step_end=callback)
    call = observe(sd, lambda: pipelines.sd(sd, 6, callback_on_step_end=callback))

    assert np.array_equal(call.result, plain)
    assert [step.index for step in call.run.steps] == [0, 1]
    assert call.run.incomplete_reason is None
    assert stage_names(call.run)[-3:] == ["DenoisingStage", "DecodingStage", "PostprocessingStage"]


def with_two_experts(monkeypatch: pytest.MonkeyPatch) -> TinyPipeline:
    """WanPipeline as Wan 2.2 is: one network above a boundary of the noise, another below."""
    entry = pipeline_entries()["WanPipeline"]
    two = PipelineEntry(
        components={
            **entry.components,
            "transformer_2": entry.components["transformer"],
            "boundary_ratio": {"value": 0.9},
        },
        call=entry.call,
    )
    monkeypatch.setattr("survey.build.pipeline_entries", lambda: {"WanPipeline": two})
    return build_pipeline("WanPipeline")


def test_two_experts_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step names the network that made it, and both are one denoising stage."""
    tiny = with_two_experts(monkeypatch)
    plain = digest(tiny.ready()())
    call = observe(tiny.pipeline, tiny.ready())

    assert digest(call.result) == plain
    experts = [{forward.component for forward in step.forwards} for step in call.run.steps]
    assert experts == [{"transformer"}, {"transformer"}, {"transformer_2"}, {"transformer_2"}]
    assert [len(step.forwards) for step in call.run.steps] == [2, 2, 2, 2]
    assert stage_names(call.run).count("DenoisingStage") == 1


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """The results of calls that begin together, each in a thread of its own."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def work(place: int, call: Callable[[], Any]) -> None:
        barrier.wait()
        results[place] = call()

    threads = [threading.Thread(target=work, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_one_real_pipeline_in_two_threads_at_once(sd: Any) -> None:
    """Each thread's call is a run with all its own steps, and each picture is the one it would be alone."""

    def seeded(seed: int) -> Callable[[], Any]:
        return lambda: pipelines.sd(sd, 4, generator=torch.Generator().manual_seed(seed))

    alone = [seeded(seed)() for seed in (1, 2)]
    with stepscope.profile(sd) as session:
        together = at_once(seeded(1), seeded(2))

    assert all(np.array_equal(*pair) for pair in zip(alone, together, strict=True))
    assert [len(call.steps_ms) for call in session.calls] == [4, 4]
    assert len({call.run.request_id for call in session.calls}) == 2


def test_two_different_pipelines_in_two_threads_at_once(sd: Any) -> None:
    """A session of everything keeps them apart: class, steps and stages of each are its own."""
    flux = pipelines.flux()
    alone = [pipelines.sd(sd, 5), pipelines.flux_call(flux, 3)]
    with stepscope.profile() as session:
        together = at_once(lambda: pipelines.sd(sd, 5), lambda: pipelines.flux_call(flux, 3))

    assert all(np.array_equal(*pair) for pair in zip(alone, together, strict=True))
    seen = {call.run.workload.pipeline_class: len(call.steps_ms) for call in session.calls}
    assert seen == {"StableDiffusionPipeline": 5, "FluxPipeline": 3}
