"""NVTX ranges of an observed call, and where they open and close a capture."""

from __future__ import annotations

from typing import Any

import pytest

import pipelines
from observing import ENVIRONMENT, WORKLOAD
from stepscope.capture.nsight.marker import NvtxRequest
from stepscope.model.nsight import Capture, Trigger
from stepscope.model.step_range import StepRange
from stepscope.model.vocabulary import Stage
from stepscope.session.observe import ObserveOptions, observe_call


class Written:
    """A marker and a gate that write down what they are told: ``+name``, ``-name``, ``(`` and ``)``."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.open_ranges: list[str] = []
        self.spent = False

    def push(self, name: str) -> None:
        self.open_ranges.append(name)
        self.log.append(f"+{name}")

    def pop(self) -> None:
        self.log.append(f"-{self.open_ranges.pop()}")

    def open(self) -> None:
        self.spent = True
        assert not self.open_ranges, "a range that began before the capture is not in it"
        self.log.append("(")

    def close(self) -> None:
        self.log.append(")")

    def captured(self) -> list[str]:
        return self.log[self.log.index("(") + 1 : self.log.index(")")]


def run(pipeline: Any, call: Any, capture: Capture | None = None, **options: Any) -> tuple[Written, Any]:
    written = Written()
    observed = observe_call(
        pipeline,
        call,
        request_id="test",
        workload=WORKLOAD,
        environment=ENVIRONMENT,
        options=ObserveOptions(
            nvtx=NvtxRequest(marker=written, capture=capture, gate=written if capture else None, **options)
        ),
    )
    return written, observed


def steps(first: int, end: int | None) -> Capture:
    return Capture(trigger=Trigger.NVTX, steps=StepRange(first=first, end=end))


STEP = ["+denoising_step_{}", "+forward_unet", "-forward_unet", "+scheduler_step", "-scheduler_step"]


def step(index: int) -> list[str]:
    return [text.format(index) for text in STEP] + [f"-denoising_step_{index}"]


def test_ranges_nest_stage_step_forward(sd: Any) -> None:
    """Every stage once, steps in the denoising stage, forward and scheduler step in each step."""
    written, observed = run(sd, lambda: pipelines.sd(sd, 2))

    log = written.log
    assert [text[1:] for text in log if text[0] == "+" and text.endswith("Stage")] == [
        stage.span.name for stage in observed.run.stages
    ]
    start = log.index("+DenoisingStage")
    assert log[start : log.index("-DenoisingStage") + 1] == [
        "+DenoisingStage", *step(0), *step(1), "-DenoisingStage"
    ]  # fmt: skip
    assert written.open_ranges == []


def test_steps_are_captured_exactly(sd: Any) -> None:
    """Steps 1:3 of 5: their ranges and no others, in a denoising stage cut to the capture."""
    written, observed = run(sd, lambda: pipelines.sd(sd, 5), steps(1, 3))

    assert written.captured() == ["+DenoisingStage", *step(1), *step(2), "-DenoisingStage"]
    assert [one.traced for one in observed.run.steps] == [False, True, True, False, False]
    assert [pause.reason for pause in observed.run.pauses] == ["nsys capture start", "nsys capture stop"]


@pytest.mark.parametrize("end", [None, 9])
def test_a_window_that_is_open_at_the_last_step_ends_with_it(sd: Any, end: int | None) -> None:
    """The capture closes before the decoder."""
    written, _ = run(sd, lambda: pipelines.sd(sd, 3), steps(2, end))

    assert written.captured() == ["+DenoisingStage", *step(2), "-DenoisingStage"]


def test_steps_that_do_not_come_capture_nothing(sd: Any) -> None:
    """No capture is opened for steps past the end: nsys then says so."""
    written, _ = run(sd, lambda: pipelines.sd(sd, 2), steps(5, 9))

    assert "(" not in written.log


def test_a_stage_is_captured_alone(sd: Any) -> None:
    """From the stage's first call to the next stage's."""
    capture = Capture(trigger=Trigger.NVTX, stage=Stage.DECODING)
    written, _ = run(sd, lambda: pipelines.sd(sd, 2), capture)

    assert written.captured()[0] == "+DecodingStage"
    assert written.captured()[-1] == "-DecodingStage"
    assert written.captured().count("+DecodingStage") == 1


def test_the_whole_call_is_captured_once(sd: Any) -> None:
    """Without steps or stage everything is inside; a spent gate does not open again."""
    written, _ = run(sd, lambda: pipelines.sd(sd, 2), Capture(trigger=Trigger.NVTX))
    assert written.log[0] == "("
    assert written.log[-1] == ")"

    first = len(written.log)
    observe_call(
        sd,
        lambda: pipelines.sd(sd, 2),
        request_id="test",
        workload=WORKLOAD,
        environment=ENVIRONMENT,
        options=ObserveOptions(
            nvtx=NvtxRequest(marker=written, capture=Capture(trigger=Trigger.NVTX), gate=written)
        ),
    )
    assert "(" not in written.log[first:]


@pytest.mark.parametrize("capture", [None, steps(1, 4)])
def test_everything_closes_when_the_pipeline_raises(sd: Any, capture: Capture | None) -> None:
    """Ranges and capture end although the call fails in step 2, and its exception is kept."""

    def fail(_pipe: Any, index: int, _t: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 2:
            raise ValueError("in step 2")
        return tensors

    written, observed = run(sd, lambda: pipelines.sd(sd, 5, callback_on_step_end=fail), capture)

    assert isinstance(observed.error, ValueError)
    assert written.open_ranges == []
    assert written.log.count("(") == written.log.count(")") == (capture is not None)


def test_module_ranges_nest_in_the_forward_and_leave_no_hook(sd: Any) -> None:
    """Each module of each component by its path; afterwards the modules are as before."""
    written, _ = run(sd, lambda: pipelines.sd(sd, 1), layers=True)

    start, end = written.log.index("+forward_unet"), written.log.index("-forward_unet")
    inside = written.log[start:end]
    assert inside[1] == "+unet"
    assert "+unet.conv_in" in inside
    assert inside.count("+unet.conv_in") == inside.count("-unet.conv_in") == 1
    assert written.open_ranges == []
    for component in (sd.unet, sd.vae, sd.text_encoder):
        for module in component.modules():
            assert not module._forward_hooks
            assert not module._forward_pre_hooks


def test_module_ranges_close_when_a_module_raises(sd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward that fails inside still closes every range around it."""

    def fail(*_: Any) -> None:
        raise ValueError("inside")

    monkeypatch.setattr(sd.unet.conv_out, "forward", fail)
    written, observed = run(sd, lambda: pipelines.sd(sd, 1), layers=True)

    assert isinstance(observed.error, ValueError)
    assert written.open_ranges == []


def test_forwards_carry_the_names_that_the_pipeline_gives_them() -> None:
    """A pipeline that says cond and uncond to its denoiser's cache has them in the ranges."""
    flux = pipelines.flux()
    written, _ = run(flux, lambda: pipelines.flux_call(flux, 1))

    named = {text[1:] for text in written.log if text.startswith("+forward_")}
    assert named <= {"forward_transformer", "forward_transformer_cond", "forward_transformer_uncond"}
    assert "forward_transformer_cond" in named


def test_the_capture_survives_the_way_through_the_environment() -> None:
    """What stepscope nsys writes is what an observed process reads."""
    for capture in (
        Capture(trigger=Trigger.NONE),
        Capture(trigger=Trigger.CUDA_PROFILER, steps=StepRange(first=5, end=None)),
        steps(3, 5),
        Capture(trigger=Trigger.NVTX, stage=Stage.DECODING),
    ):
        assert Capture.from_text(capture.to_text()) == capture
