"""Several calls in one report: short names, what they have in common first, each in full below."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from report_parts import image_rank, image_run
from stepscope.analyse.report import AnalysedTrace, assemble
from stepscope.analyse.results import Report, RunSummary
from stepscope.render.report.answer import answer
from stepscope.render.report.report_csv import render_csv
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal
from stepscope.render.report.run_names import run_label


def call(number: int, *, call_id: int | None = 0, rank: int = 0, total_ms: float = 4_000.0) -> RunSummary:
    """A run with the id that a run gets: 36 characters."""
    request_id = str(UUID(int=(number + 1) << 120))
    return replace(image_run(), request_id=request_id, call_id=call_id, rank=rank, total_ms=total_ms)


def three() -> Report:
    runs = tuple(call(at, call_id=at, total_ms=4_000.0 + 1_000 * at) for at in range(3))
    trace = AnalysedTrace(
        rank=replace(image_rank(), request_id=runs[1].request_id), untrusted=(), warnings=()
    )
    return assemble(("a.json", "b.json", "c.json", "d.trace.json"), runs, (trace,))


def test_calls_are_named_by_their_number_and_their_ids_stand_once_in_a_table() -> None:
    """No line begins with an id of 36 characters; the trace says of which call it is."""
    report = three()
    text = render_terminal(report)
    said = {line.label: line.text for line in answer(report).lines}
    took = "4,000.0 ms (call 0) to 6,000.0 ms (call 2) for the pipeline call, median 5,000.0 ms"
    assert said["Total"] == took
    assert said["Dominant"].startswith("DenoisingStage in all 3, ")
    assert said["GPU"].startswith("call 1: ")
    first, *_ = text.split("\nRuns ─")
    assert len(first.splitlines()) < 26
    assert report.runs[0].request_id not in first
    assert text.replace("\n", "").count(report.runs[0].request_id[:20]) == 1
    assert "\nCall 2 (stepscope) ─" in text
    assert ">Trace of call 1<" in render_html(report)


@pytest.mark.parametrize("render", [render_terminal, render_markdown, render_html])
def test_each_call_is_told_in_full_in_its_own_section(render: object) -> None:
    """Total and steps of every one of them."""
    text = " ".join(render(three()).split())  # type: ignore[operator]
    for total in ("4,000.0", "5,000.0", "6,000.0"):
        assert f"{total} ms for the pipeline call; " in text


def test_csv_keeps_the_ids() -> None:
    """With the call's name beside them."""
    head, *rows = render_csv(three(), "runs").splitlines()
    assert head.startswith("call,run,rank,")
    assert [row.split(",")[0] for row in rows] == ["call 0", "call 1", "call 2"]
    assert rows[0].split(",")[1] == three().runs[0].request_id


def test_what_names_runs() -> None:
    """Short ids as they are; ranks of one request by rank; runs of several programs by their place."""
    short = [replace(image_run(), request_id=name) for name in ("3f2a9c", "9b41d0")]
    assert [run_label(run, short) for run in short] == ["3f2a9c", "9b41d0"]
    ranks = [call(1, rank=rank) for rank in range(2)]
    assert [run_label(run, ranks) for run in ranks] == ["rank 0", "rank 1"]
    others = [call(1, call_id=0), call(2, call_id=0)]
    assert [run_label(run, others) for run in others] == ["run 0", "run 1"]
    unknown = [call(1, call_id=None), call(2, call_id=3)]
    assert [run_label(run, unknown) for run in unknown] == ["run 0", "run 1"]
    assert run_label(others[0], others[:1]) == others[0].request_id


def test_what_is_not_alike_is_named() -> None:
    """A cut-off call, another dominant stage, a call whose steps are not uniform."""
    report = three()
    first, second, third = report.runs
    assert first.step_statistics is not None
    uneven = replace(first.step_statistics, uniform=False, slowest=7, maximum_ms=900.0, slowest_ratio=2.5)
    runs = (
        replace(first, step_statistics=uneven),
        replace(second, incomplete_reason="interrupted"),
        replace(third, dominant_stage="DecodingStage"),
    )
    lines = [(line.label, line.text) for line in answer(replace(report, runs=runs)).lines]
    assert ("Cut off", "call 1: INCOMPLETE: interrupted") in lines
    said = dict(lines)
    assert "DenoisingStage in call 0, call 1, " in said["Dominant"]
    assert "DecodingStage in call 2, " in said["Dominant"]
    assert "NOT uniform in call 0: the slowest is step 7 of call 0 with 900.0 ms, 2.50x" in said["Steps"]


def test_a_call_without_a_trace_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As a warning of the call, and not again as one of the session."""
    import stepscope

    with stepscope.profile(steps=1) as session, stepscope.call("mine"):
        pass
    session.report()
    assert capsys.readouterr().out.count("it ended before a step was recorded") == 1
