"""Gates: budgets by GPU, rules, the rolling baseline, and what CI systems read."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumps import DATA, stepscope_json
from stepscope.analyse import findings
from stepscope.analyse.comparison.gate import budget_for, gate
from stepscope.analyse.comparison.gate_results import (
    GATE_SCHEMA_VERSION,
    Check,
    GateReport,
    GateResult,
    Outcome,
)
from stepscope.analyse.results import EngagedView, Finding, GpuSummary, RankReport, StepRow
from stepscope.analyse.run.summarise import summarise
from stepscope.cli import main
from stepscope.model.budget import Baseline, Budget, Budgets, GateRules, HistoryEntry
from stepscope.model.errors import UnreadableInputError
from stepscope.record.budget_reader import read_budgets
from stepscope.record.json_lines import append_line, read_lines
from stepscope.record.perf_dump_reader import perf_dump_from_json
from stepscope.render.comparison.gate_github import render_gate_github
from stepscope.render.comparison.gate_json import gate_schema
from stepscope.render.comparison.gate_junit import render_gate_junit
from stepscope.render.comparison.gate_tables import headline

BUDGETS = """
[default]
total_ms = 60000

[gpu."H200"]
total_ms = 4000
step_ms = 360
slowest_step_ms = 400
peak_memory_gib = 50

[gpu."H200".stages]
DenoisingStage = 3600
DecodingStage = 60

[rules]
trusted = true
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with budgets and one run on an H200."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    (tmp_path / "perf.json").write_text(json.dumps(stepscope_json([350.0] * 10)))
    return tmp_path


def summary_of(document):
    return summarise(perf_dump_from_json(document, origin="x"), path="perf.json")


def outcomes(result):
    return {check.name: check.outcome for check in result.checks}


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


def test_every_finding_can_be_forbidden() -> None:
    """The ids that a budget file may name are those that the rules give."""
    folder = Path(findings.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "__init__.py")
    given_ids = set(re.findall(r'"((?:[a-z]+)\.[a-z0-9_]+)"', text))
    assert given_ids == set(findings.FINDING_IDS)


def test_a_budget_file_saved_by_a_windows_editor_is_read(here) -> None:
    """A byte order mark and carriage returns change nothing."""
    text = BUDGETS.replace("DecodingStage = 60", "DecodingStage = 90").replace("\n", "\r\n")
    (here / "budgets.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert main(["gate", "--budget", "budgets.toml", "perf.json"]) == 0


@pytest.mark.parametrize("flags", [["--github"], ["--format", "github"], ["--format", "md"], []])
def test_no_name_becomes_a_workflow_command(here, monkeypatch, capsys, flags) -> None:
    """A runner acts on any line of the log: only our annotations may be commands."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    name = "::stop-commands::x ##[error]y.json"
    (here / "perf.json").rename(here / name)
    (here / "budgets.toml").write_text('[default.stages]\n"::add-mask::a ##[group]b" = 1\n')
    assert main(["gate", "--budget", "budgets.toml", *flags, name]) == 1
    for line in capsys.readouterr().out.splitlines():
        if not line.startswith("::error title="):
            assert not line.lstrip().startswith("::")
            assert "##[" not in line


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default]\ntotl_ms = 1\n", "did you mean total_ms"),
        ('[gpu."H200"]\nstages = 3\n', "stages"),
        ("[budget]\ntotal_ms = 1\n", "unknown key budget"),
        ("[rules]\nno_syncs = true\n", "no_sync"),
        ("[default]\ntotal_ms = -1\n", "positive"),
        ("[default]\ntotal_ms = nan\n", "positive"),
        ("[baseline]\nlast = 2\nat_least = 5\n", "at_least"),
        ("not toml", "no budget file"),
        ("", "asks for nothing"),
        ("# only a comment\n", "asks for nothing"),
        ("a = " + "[" * 9_000 + "]" * 9_000, "nested too deeply"),
        ('[gpu.""]\ntotal_ms = 1\n', "every device"),
        ('[gpu." "]\ntotal_ms = 1\n', "every device"),
        ("[baseline]\nallow_percent = nan\n", "allow_percent"),
        ("[baseline]\nallow_percent = -5\n", "allow_percent"),
        ("[rules]\nforbid_findings = ['copies.pagable']\n", "Did you mean copies.pageable"),
        ("[default]\ntotal_ms = " + "9" * 5_000, "no budget file"),
        ("[default]\ntotal_ms = 1\ntotal_ms = 2\n", "no budget file"),
    ],
)
def test_a_budget_file_that_would_check_nothing_is_refused(here, capsys, text, words) -> None:
    """Misspelt keys, bad limits and broken TOML are named; a typo never makes a gate pass."""
    (here / "budgets.toml").write_text(text)
    assert main(["gate", "--budget", "budgets.toml", "perf.json"]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_budget_file_is_a_named_error(tmp_path) -> None:
    """No traceback for a path that is not there."""
    with pytest.raises(UnreadableInputError):
        read_budgets(tmp_path / "none.toml")


def test_junit_and_annotations_of_a_failed_gate(here, capsys) -> None:
    """JUnit counts what failed; annotations go to standard output as workflow commands."""
    assert main(["gate", "--budget", "budgets.toml", "--junit", "gate.xml", "--github", "perf.json"]) == 1
    root = ET.parse(here / "gate.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "8", "1")
    (failure,) = root.iter("failure")
    assert "80.0 ms against a budget of 60.0 ms" in failure.get("message")
    out = capsys.readouterr().out
    assert "::error title=stepscope gate%3A stage DecodingStage::perf.json on NVIDIA H200" in out


def test_a_lone_surrogate_breaks_neither_views_nor_history(here) -> None:
    """A request id with half a surrogate pair is written as an escape everywhere."""
    (here / "perf.json").write_text(json.dumps(stepscope_json([350.0] * 10, request_id="\ud800")))
    (here / "budgets.toml").write_text("[default]\ntotal_ms = 9999\n")
    call = ["gate", "--budget", "budgets.toml", "--history", "h.jsonl", "--record", "perf.json"]
    for chosen in ("terminal", "json", "md", "junit", "github"):
        assert main([*call, "--format", chosen]) == 0
    assert len(read_lines(here / "h.jsonl", HistoryEntry)) == 5


def test_json_keeps_its_schema(here, capsys) -> None:
    """The JSON validates against the schema made from the types."""
    main(["gate", "--budget", "budgets.toml", "--format", "json", "perf.json"])
    jsonschema.validate(json.loads(capsys.readouterr().out), gate_schema())


def report_of(text) -> GateReport:
    check = Check(name=text, unit="ms", limit=1.0, measured=2.0, outcome=Outcome.FAILED, detail=text)
    result = GateResult(path=text, request_id="", device=text, budget="default", cohort="c", checks=(check,))
    return GateReport(schema_version=GATE_SCHEMA_VERSION, passed=False, results=(result,))


@given(st.text())
def test_any_text_gives_valid_xml_and_one_annotation(text) -> None:
    """Whatever a dump is called, the XML parses and no further workflow command appears."""
    report = report_of(text)
    ET.fromstring(render_gate_junit(report))
    lines = render_gate_github(report).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("::error title=")
    assert not lines[1].startswith("::")


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
