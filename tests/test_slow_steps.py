"""What makes a step slow is named where frames show it; how often it happens, the run's dump tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines import sd, stable_diffusion
from report_parts import image_run
from stepscope.analyse.report import AnalysedTrace, analyse_trace, assemble
from stepscope.analyse.results import Finding, Report, RunSummary, StepPartTime, StepTime
from stepscope.analyse.run.recurrence import recurrence
from stepscope.analyse.run.step_statistics import WHAT_TELLS_MORE, mark_outliers, step_statistics
from stepscope.session.report import report_files
from traces import TraceBuilder

GAP, FORWARD = "after scheduler.step", "unet.forward"


def traced(*slow: int, steps: int = 5) -> AnalysedTrace:
    """Steps of 1 ms, the slow ones of 4 ms: a callback sleeps. In each a model's frame, and a longer one."""
    made = TraceBuilder(path="r1-5_steps-global-rank0.trace.json.gz")
    at = 0.0
    for index in range(1, steps + 1):
        pause = 3_000 if index in slow else 0
        made.annotate(f"denoising_step_{index}", at, 1_000 + pause, ours=True)
        made.frame("diffusers/models/unet.py(9): forward", at, 900)
        made.operator("aten::mul", at + 10, 800)
        made.frame("my_script.py(23): cb", at + 910, 80 + pause)
        if pause:
            made.frame("<built-in function sleep>", at + 920, pause)
        at += 1_000 + pause
    return analyse_trace(made.build())


def step(index: int, *, slow: bool = False, is_traced: bool = False, part: str = GAP) -> StepTime:
    extra = 30.0 if slow else 0.0
    return StepTime(
        index=index,
        stage_index=0,
        duration_ms=(20.0 if is_traced else 10.0) + extra,
        traced=is_traced,
        parts=(
            StepPartTime(name=FORWARD, duration_ms=18.0 if is_traced else 8.0, known=True),
            StepPartTime(name=part, duration_ms=2.0 + extra, known=False),
        ),
    )


def run_of(steps: list[StepTime]) -> RunSummary:
    statistics = step_statistics(steps)
    return replace(
        image_run(), request_id="r1", steps=mark_outliers(steps, statistics), step_statistics=statistics
    )


def slow_finding(report: Report) -> Finding:
    [found] = [one for one in report.ranks[0].findings if one.id == "steps.slow"]
    return found


def test_the_frame_with_most_extra_time_is_named_with_whose_code_called_it() -> None:
    """The built-in, the user's frame around it, and its place as the finding's."""
    analysed = traced(4)
    outliers = [row.outlier for row in analysed.rank.steps]
    said = "3.0 ms more in <built-in function sleep>, called in cb (my_script.py:23)"
    assert outliers == [None, None, None, said, None]
    found = slow_finding(assemble((), (), (analysed,)))
    assert said in found.evidence
    assert found.source is not None
    assert (found.source.file, found.source.line, found.source.function) == ("my_script.py", 23, "cb")
    assert "warm-up run" in found.remedy


def test_what_comes_back_in_the_trace_is_nothing_for_a_warm_up() -> None:
    """Two steps of one frame."""
    found = slow_finding(assemble((), (), (traced(2, 5),)))
    assert found.title == "Steps 2, 5 slower than the others"
    assert found.remedy.startswith("It comes back, so no warm-up helps")


def test_the_runs_steps_tell_how_often_it_happens_and_what_it_costs() -> None:
    """Every 4th, traced or not; the cost is that of all of them."""
    steps = [step(at, slow=at % 4 == 0, is_traced=1 <= at <= 5) for at in range(1, 14)]
    report = assemble((), (run_of(steps),), (traced(4),))
    found = slow_finding(report)
    assert found.title == "Every 4th step is slower than the others"
    assert found.cost_ms == pytest.approx(90.0)
    assert "in the whole run steps 4, 8, 12 (of 13) are slow, 30.0 ms more each" in found.evidence
    assert found.evidence.endswith("most of it after scheduler.step")
    assert found.remedy.startswith("It comes back")


def test_the_run_points_at_what_the_trace_shows_instead_of_asking_for_one() -> None:
    """The steps of the same cause name the frame; others are only not told to record a trace."""
    steps = [step(at, slow=at % 4 == 0, is_traced=1 <= at <= 5) for at in range(1, 14)]
    steps[9] = step(10, slow=True, part="before unet.forward")
    alone = assemble((), (run_of(steps),), ())
    assert WHAT_TELLS_MORE in (alone.runs[0].steps[7].outlier or "")
    both = assemble((), (run_of(steps),), (traced(4),)).runs[0].steps
    assert "the trace shows cb (my_script.py:23)" in (both[7].outlier or "")
    assert "before unet.forward" in (both[9].outlier or "")
    assert not any(WHAT_TELLS_MORE in (one.outlier or "") for one in both)
    assert "my_script" not in (both[9].outlier or "")


def test_a_slow_step_that_is_alone_in_the_run_belongs_to_no_others() -> None:
    """Nothing comes back: the advice stays."""
    steps = [step(at, slow=at == 4, is_traced=1 <= at <= 5) for at in range(1, 14)]
    assert recurrence(steps, 4) is None
    assert "warm-up run" in slow_finding(assemble((), (run_of(steps),), (traced(4),))).remedy


def test_steps_slow_in_other_parts_are_other_causes() -> None:
    """A slow forward is not the callback's doing; without a rhythm none is told."""
    steps = [step(at, slow=at in {2, 3, 9}) for at in range(13)]
    steps[6] = step(6, slow=True, part="before unet.forward")
    again = recurrence(steps, 3)
    assert again is not None
    assert (again.steps, again.every, again.part) == ((2, 3, 9), None, GAP)
    unlucky = replace(
        steps[11],
        duration_ms=16.0,
        parts=(*steps[11].parts[:1], StepPartTime(name=GAP, duration_ms=8.0, known=False)),
    )
    assert recurrence([*steps[:11], unlucky, steps[12]], 3) == again


def test_a_traced_step_is_not_odd_because_it_was_traced_if_the_others_are_not() -> None:
    """Its parts tell; where all traced ones are slow, the profiler is the cause."""
    steps = [step(at, slow=at == 4, is_traced=1 <= at <= 5) for at in range(1, 14)]
    marked = mark_outliers(steps, step_statistics(steps))
    assert marked[0].outlier == "traced"
    assert "30.0 ms more after scheduler.step" in (marked[3].outlier or "")


def test_a_sleeping_callback_of_a_real_run_is_named(tmp_path: Path) -> None:
    """Every 3rd step, in a session that traces with frames: the frame, its file, how often."""
    import time

    import stepscope

    pipe = stable_diffusion()

    def sleepy(_pipeline: Any, index: int, _timestep: Any, tensors: Any) -> Any:
        if index % 3 == 0:
            time.sleep(0.5)
        return tensors

    with stepscope.profile(pipe, steps=5, save_to=tmp_path / "run") as session:
        sd(pipe, steps=13, callback_on_step_end=sleepy)
    assert not session.problems
    found = slow_finding(report_files([tmp_path / "run"]).report)
    assert "<built-in function sleep>, called in sleepy" in found.evidence
    assert found.title == "Every 3rd step is slower than the others"
    assert found.source is not None
    assert found.source.file.endswith("test_slow_steps.py")
