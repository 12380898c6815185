"""``stepscope.profile``: what is misused is told in words, before anything is installed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import pipelines
import stepscope


def test_a_session_observes_once(sd: Any) -> None:
    """A second time, or stopped without a start, it says so; its results stay."""
    with stepscope.profile(sd) as session:
        pipelines.sd(sd, 1)
    with pytest.raises(stepscope.UsageError, match="observes once"), session:
        pass
    with pytest.raises(stepscope.UsageError, match="nothing to stop"):
        session.stop()

    assert session.count == 1


@pytest.mark.parametrize("everything", [True, False])
def test_nested_sessions_are_refused_and_the_outer_goes_on(sd: Any, everything: bool) -> None:
    """Two records of one call would be one too many; the message says what to do."""
    with stepscope.profile(sd) as outer:
        with (
            pytest.raises(stepscope.UsageError, match="already observing"),
            stepscope.profile(None if everything else sd),
        ):
            pass
        pipelines.sd(sd, 1)

    assert outer.count == 1


def test_a_pipeline_gone_before_the_session_begins_is_told() -> None:
    """Not an empty result."""
    session = stepscope.profile(pipelines.stable_diffusion())
    gc.collect()
    with pytest.raises(stepscope.UsageError, match="is gone"), session:
        pass


NOT_PIPELINES = [
    (lambda: 3, "cannot be called"),
    (lambda: pipelines.sd, "is no pipeline"),
    (lambda: type(pipelines.stable_diffusion()), "is a class"),
    (lambda: len, "is no pipeline"),
]


@pytest.mark.parametrize(("make", "said"), NOT_PIPELINES)
def test_what_is_no_pipeline_is_told(make: Any, said: str) -> None:
    """At once, in words."""
    with pytest.raises(stepscope.UsageError, match=said):
        stepscope.profile(make())


@pytest.mark.parametrize("steps", [0, -2, True, "x", "5", 2.0, [1]])
def test_a_wrong_number_of_steps_is_told(sd: Any, steps: Any) -> None:
    """Before anything is installed, with what to give instead, whatever it is."""
    with pytest.raises(stepscope.UsageError, match=r"steps is .*whole number"):
        stepscope.profile(sd, steps=steps)


@pytest.mark.parametrize(("argument", "value"), [("kept_calls", "x"), ("kept_calls", 0), ("save_to", 5)])
def test_another_argument_of_the_wrong_kind_is_told(sd: Any, argument: str, value: Any) -> None:
    """In words, before anything is installed."""
    with pytest.raises(stepscope.UsageError, match=f"{argument} is"):
        stepscope.profile(sd, **{argument: value})


def test_a_number_of_numpy_is_a_number(sd: Any) -> None:
    """As a loop over an array gives it."""
    stepscope.profile(sd, steps=np.int64(3))


def test_a_detail_that_needs_a_request_beforehand_is_refused(sd: Any) -> None:
    """The requests are somebody else's."""
    with pytest.raises(stepscope.UsageError, match="detail is 'source'"):
        stepscope.profile(sd, steps=1, detail="source")
