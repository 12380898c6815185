"""A trace holds its steps and not what another stage did between them: that is no time of its stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.analyse.intervals import union
from stepscope.analyse.report import analyse_trace
from stepscope.analyse.trace.recorded import left_out, recorded_window
from stepscope.model.trace import Trace
from stepscope.record.open import read_trace
from stepscope.session.keep_trace import TraceToKeep, keep_trace
from traced_calls import trace_sd


def traced(sd: Any, folder: Path, **arguments: Any) -> Trace:
    """A call of eight steps of which four are in the trace."""
    observed = trace_sd(sd, 8, 4, folder, **arguments)
    window, _ = keep_trace(TraceToKeep(observed=observed, run=observed.run, directory=folder))
    return read_trace(Path(window.path))


def encode_again(pipeline: Any, _step: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
    """What is often found in a callback, and belongs before the loop."""
    pipeline.encode_prompt("a", "cpu", 1, False)
    return {}


def test_an_encoding_between_steps_is_no_denoising(sd: Any, tmp_path: Path) -> None:
    """Four ranges of the stage are four occurrences, and what lies between them is said to be left out."""
    found = traced(sd, tmp_path, callback_on_step_end=encode_again)
    told = analyse_trace(found)
    rank = told.rank
    assert {stage.name for stage in rank.stages} == {"DenoisingStage"}
    assert len(rank.stages) == 4
    together_ms = sum(stage.duration_ms for stage in rank.stages)
    assert together_ms == pytest.approx(sum(step.duration_ms for step in rank.steps), rel=0.01)
    [said] = [text for text in told.warnings if "not in the trace" in text]
    assert "--profile-all-stages" in said


def test_steps_without_anything_between_them_are_one_occurrence(sd: Any, tmp_path: Path) -> None:
    """And nothing is said of what was left out, since nothing was."""
    told = analyse_trace(traced(sd, tmp_path))
    rank = told.rank
    assert [stage.name for stage in rank.stages] == ["DenoisingStage"]
    assert not [text for text in told.warnings if "not in the trace" in text]


@pytest.mark.parametrize("written", [None, 3, [], [[1]], [[5, 1]], [[1, 2.5]], [[0, 2**63]], ["ab"]])
def test_a_window_that_makes_no_sense_is_none(written: Any, sd: Any, tmp_path: Path) -> None:
    """A header is anybody's: what is no list of intervals tells nothing."""
    found = traced(sd, tmp_path)
    found.metadata["stepscope"]["window"] = written
    window = recorded_window(found)
    assert window is None or not len(window)
    assert left_out(window) == ()


def test_what_is_left_out_is_the_time_between() -> None:
    """Three parts with 2 and 3 ms between them."""
    [text] = left_out(union([0, 12_000_000, 20_000_000], [10_000_000, 17_000_000, 30_000_000]))
    assert text.startswith("5.00 ms between the recorded steps")
