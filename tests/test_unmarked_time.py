"""Code that marks its own stages: what lies around the marks is in no stage, and is said to be so."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pipelines
import programs
import stepscope
from runs import MS, make_run, stage
from stepscope.analyse.run.assemble import NOTHING_MARKED
from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.summarise import summarise
from stepscope.model.run import Run
from stepscope.model.vocabulary import UNMARKED, Stage, Unmarked
from stepscope.record.perf_dump_reader import read_perf_dump
from stepscope.render.report.stage_sentences import between_sentence


def busy() -> None:
    """Some work of the program's own that nobody marked."""
    sum(range(20_000))


def graph() -> None:
    busy()
    with stepscope.stage("MyEncoder"):
        busy()
    busy()
    with stepscope.stage("MySampler"):
        for index in range(3):
            busy()
            with stepscope.step(index):
                busy()
    busy()
    with stepscope.stage("MyDecoder"):
        busy()
    busy()


def stages(run: Run) -> list[str]:
    return [stage.span.name for stage in run.stages]


def reported(session: stepscope.ProfileSession) -> str:
    text = io.StringIO()
    session.report(text)
    return text.getvalue()


def test_time_around_the_marks_is_called_by_where_it_lies() -> None:
    """No stage of diffusers that nobody marked, no stage longer than its mark; no time is lost."""
    with stepscope.profile() as session, stepscope.call("graph"):
        graph()
    (call,) = session.calls

    between = Unmarked.BETWEEN.value
    assert stages(call.run) == [
        Unmarked.BEFORE.value, "MyEncoder", between, "MySampler", between, "MyDecoder", Unmarked.AFTER.value
    ]  # fmt: skip
    for found in call.run.stages:
        unmarked = found.span.name in UNMARKED
        assert found.inferred_ns == (found.span.duration_ns if unmarked else 0)
    assert programs.doubts(call.dump) == []
    text = reported(session)
    assert "Stage " not in text
    assert "(before the first stage)" in text


def test_much_unmarked_time_is_said_in_a_sentence() -> None:
    """Where it lies and what would tell more; not that it is a pipeline's between known calls."""
    places = (Unmarked.BEFORE, Unmarked.BETWEEN, Unmarked.AFTER)
    made = [
        replace(stage(place.value, at, at * 30 * MS, (at + 1) * 30 * MS), inferred_ns=30 * MS)
        for at, place in enumerate(places)
    ]
    run = make_run(stages=made, total_ns=100 * MS)
    assert between_sentence(summarise(reconcile(run))) == (
        "30.0 ms before the first stage, 30.0 ms between stages and 30.0 ms after the last stage: "
        "code without a mark; stepscope.stage(name) gives it one"
    )


def test_a_marked_loop_without_a_stage_is_one_stage() -> None:
    """What lies between two of its steps is the loop's; what lies around it is not."""
    with stepscope.profile() as session, stepscope.call("loop"):
        for index in range(4):
            busy()
            with stepscope.step(index):
                busy()
        busy()
    (call,) = session.calls

    assert stages(call.run) == [Unmarked.BEFORE.value, Stage.DENOISING.value, Unmarked.AFTER.value]
    assert len(call.run.steps) == 4


def test_a_pipeline_inside_keeps_its_own_gaps() -> None:
    """Between two of its known calls, as when it is called alone; around it nothing is a stage of it."""
    pipeline = pipelines.stable_diffusion()
    with stepscope.profile(pipeline) as alone:
        pipelines.sd(pipeline, 2)
    with stepscope.profile() as session, stepscope.call("graph"):
        with stepscope.stage("Load"):
            busy()
        pipelines.sd(pipeline, 2)
        with stepscope.stage("Save"):
            busy()

    own = set(stages(alone.calls[0].run))
    found = [name for name in stages(session.calls[0].run) if name not in UNMARKED]
    assert set(found) <= {"Load", "Save", *own}
    assert {Stage.TEXT_ENCODING, Stage.DENOISING, Stage.DECODING} <= set(found)
    assert found[0] == "Load"
    assert found[-1] == "Save"


def test_a_call_without_any_mark_says_so() -> None:
    """One row, and the remark how to get more."""
    with stepscope.profile() as session, stepscope.call("graph"):
        busy()
    (call,) = session.calls

    assert stages(call.run) == [Unmarked.ALL.value]
    assert NOTHING_MARKED in call.run.warnings


def test_unmarked_time_is_in_the_dump_and_no_stage_of_the_trace(tmp_path: Any) -> None:
    """The dump's stages sum to the total; the trace has spans of what was marked only."""
    with stepscope.profile(all_stages=True, save_to=tmp_path / "run") as session, stepscope.call("graph"):
        graph()
    (call,) = session.calls

    dump = read_perf_dump(tmp_path / "run" / "perf.json")
    assert Unmarked.BETWEEN.value in {stage.name for stage in dump.stages}
    assert Unmarked.BETWEEN.value in {stage.name for stage in dump.steps}
    assert call.trace_path is not None
    text = reported(session)
    traced = text[text.index("Stages in the trace") :]
    assert "MyDecoder" in traced
    assert not [place for place in UNMARKED if place in traced]
