"""One observed call: stages, steps, total, and the same picture as without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pipelines
from stepscope.model.run import Environment, Run, Workload
from stepscope.session.observe import ObservedCall, ObserveOptions, observe_call

ENVIRONMENT = Environment(stepscope="0", python="3", platform="test", host="test")
WORKLOAD = Workload(model="tiny", pipeline_class="test")


def observe(pipeline: Any, call: Callable[[], Any], **options: Any) -> ObservedCall:
    return observe_call(
        pipeline,
        call,
        request_id="test",
        workload=WORKLOAD,
        environment=ENVIRONMENT,
        options=ObserveOptions(**options),
    )


def stage_names(run: Run) -> list[str]:
    return [stage.span.name for stage in run.stages]


@pytest.fixture(scope="module")
def sd() -> Any:
    return pipelines.stable_diffusion()


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
