"""What runs and traces are called where a report holds several that do not belong together."""

from __future__ import annotations

from dataclasses import replace

from dumps import stepscope_json
from stepscope.analyse.report import analyse_trace, assemble
from stepscope.analyse.run.summarise import summarise
from stepscope.record.perf_dump_reader import perf_dump_from_json
from stepscope.render.report.rank_names import rank_name
from stepscope.render.report.report_terminal import render_terminal
from traces import TraceBuilder


def names(report):
    return [rank_name(rank, report.ranks) for rank in report.ranks]


def test_unrelated_traces_are_called_by_their_files() -> None:
    """Three programs are not three times rank 0; ranks of one request keep their numbers."""
    made = []
    for name in ("a", "b"):
        builder = TraceBuilder(path=f"logs/{name}.json")
        builder.launch("gemm", 0, 10, 5)
        made.append(analyse_trace(builder.build()))
    report = assemble(("a", "b"), (), made)
    assert names(report) == ["a.json rank 0", "b.json rank 0"]
    screen = render_terminal(report)
    assert "a.json" in screen
    ranks = [replace(one, rank=replace(one.rank, rank=at)) for at, one in enumerate(made)]
    assert names(assemble(("a", "b"), (), ranks)) == ["rank 0", "rank 1"]


def test_the_dump_that_is_not_to_be_trusted_is_named_by_its_file() -> None:
    """One bad dump among several."""
    good = summarise(perf_dump_from_json(stepscope_json([350.0] * 10), origin="x"), path="good.json")
    bad = summarise(
        perf_dump_from_json(stepscope_json([350.0] * 10, total_ms=0.0), origin="x"), path="bad.json"
    )
    reasons = assemble(("good.json", "bad.json"), (good, bad), ()).trust.reasons
    assert reasons
    assert all(reason.startswith("bad.json: ") for reason in reasons)
