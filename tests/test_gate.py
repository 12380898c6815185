"""Gates: budgets by GPU, what counts as measured, the exit status and the table."""

import pytest

from dumps import stepscope_json
from gates import BUDGETS, budgets_and_a_run, outcomes, summary_of
from stepscope.analyse.comparison.gate import budget_for, gate
from stepscope.analyse.comparison.gate_results import (
    Check,
    GateReport,
    GateResult,
    Outcome,
)
from stepscope.cli import main
from stepscope.model.budget import Budget, Budgets, GateRules
from stepscope.render.comparison.gate_tables import headline


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with budgets and one run on an H200."""
    monkeypatch.chdir(tmp_path)
    return budgets_and_a_run(tmp_path)


def test_a_broken_budget_is_status_1_and_a_table(here, capsys, golden) -> None:
    """The decode is over its budget: the table names it first, with both numbers."""
    assert main(["gate", "--budget", "budgets.toml", "perf.json"]) == 1
    golden("gate_failed.txt", capsys.readouterr().out)


def test_kept_budgets_are_status_0(here, capsys) -> None:
    """With a wider decode budget the gate passes."""
    (here / "budgets.toml").write_text(BUDGETS.replace("DecodingStage = 60", "DecodingStage = 90"))
    assert main(["gate", "--budget", "budgets.toml", "perf.json"]) == 0
    assert capsys.readouterr().out.startswith("GATE PASSED: 8 checks")


def test_a_run_folder_is_as_good_as_the_dump_in_it(here, capsys) -> None:
    """As docs/compare.md says; one without a dump is a mistake in one line."""
    (here / "budgets.toml").write_text(BUDGETS.replace("DecodingStage = 60", "DecodingStage = 90"))
    (here / "run" / "logs").mkdir(parents=True)
    (here / "perf.json").rename(here / "run" / "perf.json")
    assert main(["gate", "--budget", "budgets.toml", "run"]) == 0
    assert main(["gate", "--budget", "budgets.toml", "run/logs"]) == 2
    assert "holds no perf dump" in capsys.readouterr().err


def test_only_checks_that_were_done_are_counted() -> None:
    """A baseline without a history is not a check that passed."""
    checks = tuple(
        Check(name=name, outcome=outcome, measured=1.0, limit=2.0, unit="ms")
        for name, outcome in (("total", Outcome.PASSED), ("baseline", Outcome.SKIPPED))
    )
    result = GateResult(path="p", request_id="r", device="d", budget="b", cohort="c", checks=checks)
    assert (
        headline(GateReport(schema_version=1, passed=True, results=(result,)))
        == "GATE PASSED: 1 check, 1 skipped"
    )


def test_the_most_specific_gpu_wins() -> None:
    """'H200' applies to an H200 NVL unless 'H200 NVL' has its own; anything else gets the default."""
    wide, narrow, default = (Budget(total_ms=ms) for ms in (1.0, 2.0, 3.0))
    budgets = Budgets(default=default, gpu={"h200": wide, "H200 NVL": narrow})
    assert budget_for("NVIDIA H200", budgets) == ("h200", wide)
    assert budget_for("NVIDIA H200 NVL", budgets) == ("H200 NVL", narrow)
    assert budget_for("AMD MI300X", budgets) == ("default", default)


@pytest.mark.parametrize(
    ("name", "device"), [("H20", "NVIDIA H200"), ("A10", "NVIDIA A100-SXM4-80GB"), ("L4", "NVIDIA L40S")]
)
def test_a_gpu_whose_name_begins_alike_is_another_gpu(name, device) -> None:
    """An H20's budget is not held against an H200, whose times it would wave through or always fail."""
    default = Budget(total_ms=1.0)
    assert budget_for(device, Budgets(default=default, gpu={name: Budget()})) == ("default", default)
    assert budget_for(f"NVIDIA {name}", Budgets(gpu={name: default})) == (name, default)


def test_times_that_no_run_can_take_keep_no_budget() -> None:
    """A missing or negative total, stage or step is not measured, even where untrusted ones are allowed."""
    document = stepscope_json([-350.0] * 10, total_ms=-3000.0, decode_ms=-1.0)
    budget = Budget(total_ms=9999, step_ms=9999, slowest_step_ms=9999, stages={"DecodingStage": 9999})
    result = gate(summary_of(document), Budgets(default=budget, rules=GateRules(trusted=False)))
    failed = {check.name for check in result.checks if check.detail == "not measured"}
    assert failed == {"total", "median step", "slowest step", "stage DecodingStage"}


def test_no_budget_for_a_device_fails() -> None:
    """A run on a GPU nobody set a budget for is not waved through."""
    result = gate(summary_of(stepscope_json([350.0] * 10)), Budgets(gpu={"B200": Budget(total_ms=1.0)}))
    assert not result.passed
    assert outcomes(result)["a budget for this device"] is Outcome.FAILED


def test_what_cannot_be_measured_fails() -> None:
    """A memory budget on a dump without memory, a stage that is not there, a rule without a trace."""
    document = stepscope_json([350.0] * 10, memory_checkpoints=None)
    budgets = Budgets(
        default=Budget(peak_memory_gib=10, stages={"NoSuchStage": 1.0}), rules=GateRules(no_sync_in_loop=True)
    )
    result = gate(summary_of(document), budgets)
    failed = {check.name: check.detail for check in result.checks if check.outcome is Outcome.FAILED}
    assert failed["peak memory"] == "not measured"
    assert failed["stage NoSuchStage"] == "not measured"
    assert "--trace" in failed["no synchronisation in the loop"]
