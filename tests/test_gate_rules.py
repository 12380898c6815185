"""Rules of a gate: trusted and complete runs, and findings of the run's own trace."""

import json

import pytest

from dumps import DATA, stepscope_json
from gates import budgets_and_a_run, outcomes, summary_of
from stepscope.analyse.comparison.gate import gate
from stepscope.analyse.comparison.gate_results import (
    Outcome,
)
from stepscope.analyse.results import EngagedView, Finding, GpuSummary, RankReport, StepRow
from stepscope.cli import main
from stepscope.model.budget import Budget, Budgets, GateRules


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with budgets and one run on an H200."""
    monkeypatch.chdir(tmp_path)
    return budgets_and_a_run(tmp_path)


def test_untrusted_and_incomplete_runs_fail_unless_allowed() -> None:
    """A dump with the profiler inside breaks the rule 'trusted', which a budget file may switch off."""
    document = json.loads((DATA / "sglang_cpu_asked_3.perf.json").read_text())
    budgets = Budgets(default=Budget(total_ms=9999))
    assert outcomes(gate(summary_of(document), budgets))["trusted numbers"] is Outcome.FAILED
    lenient = Budgets(default=Budget(total_ms=9999), rules=GateRules(trusted=False))
    assert gate(summary_of(document), lenient).passed
    cut = stepscope_json([350.0] * 10, incomplete_reason="out of memory")
    assert outcomes(gate(summary_of(cut), budgets))["complete run"] is Outcome.FAILED


GPU = GpuSummary(
    name="NVIDIA H200", device_count=1, kernel_count=1, span_ms=9.0, busy_ms=8.0, busy_ratio=0.9,
    compute_ms=8.0, communication_ms=0.0, exposed_communication_ms=0.0, copy_ms=0.0, exposed_copy_ms=0.0,
    idle_ms=1.0,
)  # fmt: skip


STEP = StepRow(
    index=1, stage_index=0, duration_ms=3.0, gpu_busy_ms=2.0, kernel_count=1, forwards=1, outlier=None,
    inferred=False,
)  # fmt: skip


def rank_with(*finding_ids, gpu=True, step_count=3):
    findings = tuple(
        Finding(id=each, title="t", evidence="e", cost_ms=1.0, source=None, remedy="r")
        for each in finding_ids
    )
    return RankReport(
        rank=0, path="t", request_id=None, source="stepscope", event_count=1, stages=(),
        gpu=GPU if gpu else None, steps=(STEP,) * step_count,
        categories=(), transfers=(), kernels=(), findings=findings,
        engaged=EngagedView(attention=None, gemm_dtypes=(), compiled_kernel_share=0.0, graph_replays=0),
    )  # fmt: skip


def test_rules_on_findings_of_the_trace() -> None:
    """A synchronisation in the loop breaks its rule; another finding only where it is forbidden by id."""
    summary = summary_of(stepscope_json([350.0] * 10))
    rules = GateRules(no_sync_in_loop=True, forbid_findings=("copy.pageable",))
    budgets = Budgets(default=Budget(total_ms=9999), rules=rules)
    assert gate(summary, budgets, ranks=[rank_with("host.other")]).passed
    for broken in ("host.sync_in_loop", "copy.pageable"):
        assert not gate(summary, budgets, ranks=[rank_with(broken)]).passed


@pytest.mark.parametrize(
    ("finding_id", "ranks", "words"),
    [
        ("host.sync_in_loop", [rank_with(gpu=False)], "the trace has no GPU events"),
        ("host.sync_in_loop", [rank_with(), rank_with(gpu=False)], "the trace of rank 0 has no GPU events"),
        ("copies.pageable", [rank_with(gpu=False)], "the trace has no GPU events"),
        ("host.sync_in_loop", [rank_with(step_count=0)], "no denoising step"),
        ("steps.slow", [rank_with(gpu=False, step_count=0)], "no denoising step"),
        ("memory.grows", [rank_with()], "no record of allocated memory"),
        ("communication.straggler", [rank_with()], "two ranks or more"),
    ],
)
def test_a_rule_that_the_trace_cannot_answer_is_broken(finding_id, ranks, words) -> None:
    """A trace in which such a finding cannot be proves nothing: the check says why and fails."""
    rules = GateRules(forbid_findings=(finding_id,))
    result = gate(
        summary_of(stepscope_json([350.0] * 10)),
        Budgets(default=Budget(total_ms=9999), rules=rules),
        ranks=ranks,
    )
    (failed,) = (check for check in result.checks if check.outcome is Outcome.FAILED)
    assert failed.detail.startswith("not measured: ")
    assert words in failed.detail


def test_what_a_trace_of_a_cpu_can_answer_is_answered() -> None:
    """Slow steps are found without a GPU: their absence there is a kept rule."""
    rules = GateRules(forbid_findings=("steps.slow", "recording.step_count"))
    budgets = Budgets(default=Budget(total_ms=9999), rules=rules)
    assert gate(summary_of(stepscope_json([350.0] * 10)), budgets, ranks=[rank_with(gpu=False)]).passed


def cpu_trace(path, *, request_id=None):
    """A trace of two steps on a CPU, as stepscope writes it where a request is named."""
    ours = {} if request_id is None else {"stepscope": True}
    where = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "args": ours}
    steps = [where | {"name": f"denoising_step_{i}", "ts": 1000 * i, "dur": 900} for i in (1, 2)]
    header = {} if request_id is None else {"stepscope": {"schema": 1, "request_id": request_id}}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], **header, "traceEvents": steps}))
    return str(path)


SYNC_RULE = "[default]\ntotal_ms = 9999\n[rules]\nno_sync_in_loop = true\n"


def test_a_trace_without_gpu_events_keeps_no_rule_about_the_gpu(here, capsys) -> None:
    """A run on a CPU does not pass for one without synchronisations."""
    (here / "budgets.toml").write_text(SYNC_RULE)
    trace = cpu_trace(here / "cpu.trace.json")
    assert main(["gate", "--budget", "budgets.toml", "--trace", trace, "perf.json"]) == 1
    assert "the trace has no GPU events" in " ".join(capsys.readouterr().out.split())


def test_the_trace_of_another_run_is_refused(here, capsys) -> None:
    """Where run and trace name their request; each run of several is held against its own traces."""
    (here / "budgets.toml").write_text(SYNC_RULE)
    for name, request in (("perf.json", "one"), ("two.json", "two")):
        (here / name).write_text(json.dumps(stepscope_json([350.0] * 10, request_id=request)))
    call = ["gate", "--budget", "budgets.toml", "--format", "json", "--trace"]
    other = cpu_trace(here / "t.json", request_id="two")
    assert main([*call, other, "perf.json"]) == 2
    assert "t.json is the trace of request two, not of one" in capsys.readouterr().err
    assert main([*call, other, "perf.json", "two.json"]) == 1
    said = [each["checks"][2]["detail"] for each in json.loads(capsys.readouterr().out)["results"]]
    assert "give the run's trace" in said[0]
    assert "no GPU events" in said[1]


def test_a_name_given_to_a_foreign_trace_is_no_request(here, capsys) -> None:
    """A UUID in the file name is one; what somebody called the file is not."""
    (here / "budgets.toml").write_text(SYNC_RULE)
    call = ["gate", "--budget", "budgets.toml", "perf.json", "--trace"]
    assert main([*call, cpu_trace(here / "nightly-rank0.trace.json")]) == 1
    named = "8947c88a-eec4-48c0-9db9-0d9f46a9da43-5_steps-global-rank0.trace.json"
    assert main([*call, cpu_trace(here / named)]) == 2
    assert "is the trace of request 8947c88a" in capsys.readouterr().err


def test_each_trace_has_its_own_option(here, capsys) -> None:
    """--trace takes one file and may be repeated, so that a run after it stays a run."""
    (here / "budgets.toml").write_text(SYNC_RULE)
    traces = [cpu_trace(here / f"rank{rank}.json") for rank in (0, 1)]
    assert (
        main(["gate", "--budget", "budgets.toml", "--trace", traces[0], "--trace", traces[1], "perf.json"])
        == 1
    )
    assert "GATE FAILED" in capsys.readouterr().out


def test_a_synchronisation_found_in_a_real_trace_breaks_the_rule(here, shared_traces, capsys) -> None:
    """Block-level offload without a stream waits in every step; the compiled run does not have to."""
    (here / "budgets.toml").write_text("[default]\ntotal_ms = 9999\n[rules]\nno_sync_in_loop = true\n")
    trace = shared_traces / "qwen_image_4layer_group_offload.trace.json.gz"
    assert main(["gate", "--budget", "budgets.toml", "perf.json", "--trace", str(trace)]) == 1
    assert "cudaMemcpyAsync" in capsys.readouterr().out
