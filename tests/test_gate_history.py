"""The rolling baseline of a gate: cohorts, and the history file it reads and appends to."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumps import stepscope_json
from gates import budgets_and_a_run, outcomes, summary_of
from stepscope.analyse.comparison.gate import gate
from stepscope.analyse.comparison.gate_results import (
    Outcome,
)
from stepscope.cli import main
from stepscope.model.budget import Baseline, Budget, Budgets, HistoryEntry
from stepscope.record.json_lines import append_line, read_lines


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with budgets and one run on an H200."""
    monkeypatch.chdir(tmp_path)
    return budgets_and_a_run(tmp_path)


def entry(total_ms, *, good=True, cohort="c"):
    return HistoryEntry(cohort=cohort, request_id="r", total_ms=total_ms, good=good)


def test_the_rolling_baseline_counts_good_runs_of_the_cohort() -> None:
    """Median of the last K good runs; bad runs, other cohorts and older runs do not count."""
    summary = summary_of(stepscope_json([350.0] * 10))  # 3,780 ms
    budgets = Budgets(default=Budget(total_ms=9999), baseline=Baseline(last=3, at_least=3, allow_percent=5))
    cohort = gate(summary, budgets).cohort
    mine = [entry(ms, cohort=cohort) for ms in (100.0, 3600.0, 3610.0, 3620.0)]
    others = [entry(50.0), entry(60.0, cohort=cohort, good=False)] * 3
    kept = gate(summary, budgets, history=[*mine, *others])
    assert outcomes(kept)["rolling baseline"] is Outcome.PASSED
    faster = [entry(ms, cohort=cohort) for ms in (3500.0, 3501.0, 3499.0)]
    assert outcomes(gate(summary, budgets, history=faster))["rolling baseline"] is Outcome.FAILED
    young = gate(summary, budgets, history=faster[:2])
    assert outcomes(young)["rolling baseline"] is Outcome.SKIPPED
    assert young.passed
    again = gate(summary, budgets, history=[faster[0]] * 5)  # one run, recorded by each try of a job
    assert outcomes(again)["rolling baseline"] is Outcome.SKIPPED
    absurd = [entry(ms, cohort=cohort) for ms in (0.0, -1.0, -2.0)]
    assert outcomes(gate(summary, budgets, history=absurd))["rolling baseline"] is Outcome.SKIPPED


def test_a_cohort_is_the_same_work_on_the_same_kind_of_gpu() -> None:
    """A new driver or commit stays in the cohort; another size, GPU or compile mode leaves it."""
    budgets = Budgets(default=Budget(total_ms=9999))

    def cohort(part="environment", **values):
        document = stepscope_json([350.0] * 10)
        document[part] |= values
        return gate(summary_of(document), budgets).cohort

    assert cohort() == cohort(driver="999") == cohort(commit="abc")
    assert (
        len(
            {
                cohort(),
                cohort(device_name="B200"),
                cohort("workload", height=512),
                cohort("workload", compile="blocks"),
            }
        )
        == 4
    )


def test_history_is_recorded_only_when_asked(here, capsys) -> None:
    """--record appends the run with its outcome; the fourth run then has a baseline."""
    (here / "budgets.toml").write_text("[default]\ntotal_ms = 9999\n[baseline]\nallow_percent = 5\n")
    call = ["gate", "--budget", "budgets.toml", "--history", "h.jsonl", "perf.json"]
    assert main(call) == 0
    assert not (here / "h.jsonl").exists()
    for step_ms in (350.0, 350.1, 350.2):
        (here / "perf.json").write_text(json.dumps(stepscope_json([step_ms] * 10)))
        assert main([*call, "--record"]) == 0
    assert len(read_lines(here / "h.jsonl", HistoryEntry)) == 3
    (here / "perf.json").write_text(json.dumps(stepscope_json([400.0] * 10)))
    capsys.readouterr()
    assert main([*call, "--record"]) == 1
    assert "rolling baseline" in capsys.readouterr().out
    assert [each.good for each in read_lines(here / "h.jsonl", HistoryEntry)] == [True] * 3 + [False]


@given(st.lists(st.integers(0, 5), max_size=5), st.integers(0, 200), st.booleans())
def test_a_history_cut_anywhere_goes_on(tmp_path_factory, values, cut, final) -> None:
    """A file cut at any byte loses the cut line at most, and what is appended afterwards is read."""
    path = tmp_path_factory.mktemp("history") / "h.jsonl"
    for value in values:
        append_line(path, entry(float(value)))
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(content[: min(cut, len(content))] if not final else content.rstrip(b"\n"))
    before = read_lines(path, HistoryEntry)
    append_line(path, entry(9.0))
    assert read_lines(path, HistoryEntry) == (*before, entry(9.0))
