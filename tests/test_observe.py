"""One observed call: stages, steps, total, and the same picture as without."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.stable_diffusion import pipeline_stable_diffusion as sd_module

import leftovers
import pipelines
from observing import gaps, observe, slow, stage_names
from stepscope.capture.active import make_instance_wrapper
from stepscope.capture.fake import FakeDevice, FakeDeviceClock
from stepscope.capture.wrapping import Wrappers
from stepscope.model.run import Run
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.observe import TraceRequest, observe_call


def test_a_run_has_all_its_stages_in_order(sd: Any) -> None:
    """Every stage of a text-to-image pipeline is seen where it happens."""
    run = observe(sd, lambda: pipelines.sd(sd)).run

    assert stage_names(run) == [
        "InputValidationStage",
        "TextEncodingStage",
        "TimestepPreparationStage",
        "LatentPreparationStage",
        "DenoisingStage",
        "DecodingStage",
        "PostprocessingStage",
    ]
    assert [step.index for step in run.steps] == [0, 1, 2]
    assert [forward.batch for step in run.steps for forward in step.forwards] == [2, 2, 2]


def test_the_picture_is_the_same_to_the_bit(sd: Any) -> None:
    """Observation changes no bit of the output."""
    assert np.array_equal(pipelines.sd(sd), observe(sd, lambda: pipelines.sd(sd)).result)


def test_heun_takes_two_forwards_for_each_step_but_the_last() -> None:
    """A second-order scheduler asked for 10 takes 19 steps, and says why."""
    pipeline = pipelines.stable_diffusion(pipelines.scheduler("HeunDiscreteScheduler"))

    run = observe(pipeline, lambda: pipelines.sd(pipeline, 10)).run

    assert len(run.steps) == 19
    assert {step.solver_order for step in run.steps} == {2}


NAP_MS = 50


NAP_NS = NAP_MS * 1_000_000


def stage_ns(run: Run, name: str) -> int:
    return sum(stage.span.duration_ns for stage in run.stages if stage.span.name == name)


PLANTED = [
    ("scheduler", "step", "DenoisingStage"),
    ("unet", "forward", "DenoisingStage"),
    ("text_encoder", "forward", "TextEncodingStage"),
    ("vae", "decode", "DecodingStage"),
    ("image_processor", "postprocess", "PostprocessingStage"),
]


@pytest.mark.parametrize(("component", "method", "stage"), PLANTED)
def test_planted_time_is_found_where_it_is_and_nowhere_else(
    sd: Any, monkeypatch: pytest.MonkeyPatch, component: str, method: str, stage: str
) -> None:
    """On a clock that moves only in the nap, its stage has exactly the nap and every other stage nothing."""
    device = FakeDevice()
    owner = type(getattr(sd, component))
    monkeypatch.setattr(owner, method, slow(getattr(owner, method), lambda: device.work(NAP_MS)))

    run = observe(sd, lambda: pipelines.sd(sd), clock=FakeDeviceClock(device)).run

    assert {s.span.name: s.span.duration_ns for s in run.stages if s.span.duration_ns} == {stage: NAP_NS}
    assert run.total_ns == NAP_NS
    if stage == "DenoisingStage":
        assert [step.span.duration_ns for step in run.steps] == [NAP_NS, 0, 0]


def test_a_real_sleep_is_in_its_stage(sd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on the real clock: 50 ms in text encoding are at least that there."""
    owner = type(sd.text_encoder)
    nap = slow(owner.forward, lambda: time.sleep(NAP_MS / 1000))
    monkeypatch.setattr(owner, "forward", nap)

    run = observe(sd, lambda: pipelines.sd(sd)).run

    assert stage_ns(run, "TextEncodingStage") >= NAP_NS


def test_time_between_two_stages_belongs_to_the_next_and_is_inferred(
    sd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the pipeline itself does between encoding and the timesteps is TimestepPreparation's gap."""
    device = FakeDevice()
    nap = slow(sd_module.retrieve_timesteps, lambda: device.work(NAP_MS))
    monkeypatch.setattr(sd_module, "retrieve_timesteps", nap)

    run = observe(sd, lambda: pipelines.sd(sd), clock=FakeDeviceClock(device)).run

    (stage,) = [stage for stage in run.stages if stage.span.duration_ns]
    assert stage.span.name == "TimestepPreparationStage"
    assert stage.inferred_ns == NAP_NS


def test_time_in_one_step_is_found_in_that_step(sd: Any) -> None:
    """A callback that takes its time at the end of an iteration is in that step, in the last one too."""
    device = FakeDevice()

    def callback(_pipeline: Any, index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        if index in (2, 5):
            device.work(NAP_MS)
        return {}

    clock = FakeDeviceClock(device)
    run = observe(sd, lambda: pipelines.sd(sd, 6, callback_on_step_end=callback), clock=clock).run

    assert [step.span.duration_ns for step in run.steps] == [0, 0, NAP_NS, 0, 0, NAP_NS]
    assert stage_ns(run, "DenoisingStage") == 2 * NAP_NS
    assert stage_ns(run, "DecodingStage") == 0
    assert [(part.name, part.duration_ns) for part in run.steps[5].parts if part.duration_ns] == [
        ("after scheduler.step", NAP_NS)
    ]


def test_a_callback_of_the_older_kind_is_in_the_loop_though_it_follows_the_progress_bar(sd: Any) -> None:
    """It comes after the bar has moved on: in the next step, but after the last one not in the decoding."""
    device = FakeDevice()

    def callback(index: int, _timestep: Any, _latents: Any) -> None:
        if index in (1, 3):
            device.work(NAP_MS)

    clock = FakeDeviceClock(device)
    with pytest.warns(FutureWarning):
        run = observe(sd, lambda: pipelines.sd(sd, 4, callback=callback, callback_steps=1), clock=clock).run

    assert [step.span.duration_ns for step in run.steps] == [0, 0, NAP_NS, NAP_NS]
    assert stage_ns(run, "DecodingStage") == 0


def test_steps_sum_to_their_stage_and_stages_leave_no_gap(sd: Any) -> None:
    """Each stage begins where the one before it ended, within the whole call."""
    run = observe(sd, lambda: pipelines.sd(sd, 12)).run

    assert sum(step.span.duration_ns for step in run.steps) == stage_ns(run, "DenoisingStage")
    assert gaps(run) == []
    assert sum(stage.span.duration_ns for stage in run.stages) <= (run.total_ns or 0)


def test_what_a_pipeline_does_before_its_first_known_call_and_after_its_last_is_in_a_stage(sd: Any) -> None:
    """On a clock that moves only there, the stages sum to the total."""
    device = FakeDevice()

    def call() -> None:
        device.work(NAP_MS)
        pipelines.sd(sd, 2)
        device.work(NAP_MS)

    run = observe(sd, call, clock=FakeDeviceClock(device)).run

    assert run.total_ns == 2 * NAP_NS
    assert sum(stage.span.duration_ns for stage in run.stages) == 2 * NAP_NS


@pytest.mark.parametrize("count", [1, 2])
def test_controlnets_are_part_of_the_step_they_condition(count: int) -> None:
    """Each step has its ControlNets' time and one denoiser forward; several nets do not make more steps."""
    pipeline = pipelines.controlled(count)
    picture = torch.zeros(1, 3, 32, 32)
    image = [picture] * count if count > 1 else picture

    run = observe(pipeline, lambda: pipelines.sd(pipeline, 3, image=image)).run

    assert run.incomplete_reason is None
    assert [[forward.component for forward in step.forwards] for step in run.steps] == [["unet"]] * 3
    (denoising,) = [stage for stage in run.stages if stage.span.name == "DenoisingStage"]
    assert [call.name for call in denoising.calls].count("controlnet.forward") == 3


def test_a_call_in_which_nothing_is_known_says_so(sd: Any) -> None:
    """Time is not invented: the whole is inferred and the warning says why."""
    run = observe(sd, lambda: None).run

    assert run.steps == ()
    assert "no known call" in run.warnings[0]


class Boom(Exception):
    pass


@pytest.mark.parametrize("error", [Boom("in step 7"), KeyboardInterrupt(), MemoryError("out of memory")])
def test_what_was_recorded_before_an_exception_is_kept(sd: Any, error: BaseException, tmp_path: Path) -> None:
    """Seven steps are kept with the reason, and the exception itself is handed back untouched."""

    def callback(_pipeline: Any, index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        if index == 6:
            raise error
        return {}

    request = TraceRequest(steps=20, scratch_dir=tmp_path, detail=TraceDetail.OPS)
    call = observe(sd, lambda: pipelines.sd(sd, 12, callback_on_step_end=callback), trace=request)

    assert call.error is error
    assert call.result is None
    assert len(call.run.steps) == 7
    assert (call.run.incomplete_reason or "").startswith(type(error).__name__)
    assert call.raw_trace is not None
    assert call.raw_trace.steps == (1, 2, 3, 4, 5, 6)


def test_image_to_image_encodes_an_image_and_takes_fewer_steps() -> None:
    """The VAE's encode inside the preparation of latents is its own stage; strength shortens the loop."""
    pipeline = pipelines.stable_diffusion_image_to_image()
    image = np.zeros((1, 32, 32, 3), dtype=np.float32)

    def call() -> Any:
        generator = torch.Generator().manual_seed(0)
        return pipeline(
            "a cat",
            image=image,
            num_inference_steps=10,
            strength=0.4,
            generator=generator,
            output_type="np",
        ).images

    observed = observe(pipeline, call)

    assert "ImageVAEEncodingStage" in stage_names(observed.run)
    assert len(observed.run.steps) == 4
    assert np.array_equal(call(), observed.result)


def test_what_is_left_on_an_instance_is_found(sd: Any) -> None:
    """The fixture of all tests sees a wrapper, a hook and an attribute of ours on a pipeline or its parts."""
    wrappers = Wrappers()
    sd.scheduler.scale_model_input = sd.scheduler.scale_model_input  # an instance's own, as some engines have
    wrappers.wrap(sd.scheduler, "scale_model_input", make_instance_wrapper(sd.scheduler))
    sd.vae.stepscope_seen = True
    made = pipelines.stable_diffusion()
    handle = made.unet.mid_block.register_forward_hook(observe_call)
    try:
        found = leftovers.found()
    finally:
        handle.remove()
        wrappers.remove()
        del sd.vae.stepscope_seen, sd.scheduler.scale_model_input
    assert {"DDIMScheduler().scale_model_input", "AutoencoderKL().stepscope_seen"} <= set(found)
    assert "mid_block._forward_hooks" in found
