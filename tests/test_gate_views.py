"""What CI systems read of a gate: JUnit, workflow commands, JSON."""

import json
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumps import stepscope_json
from gates import budgets_and_a_run
from stepscope.analyse.comparison.gate_results import (
    GATE_SCHEMA_VERSION,
    Check,
    GateReport,
    GateResult,
    Outcome,
)
from stepscope.cli import main
from stepscope.model.budget import HistoryEntry
from stepscope.record.json_lines import read_lines
from stepscope.render.comparison.gate_github import render_gate_github
from stepscope.render.comparison.gate_json import gate_schema
from stepscope.render.comparison.gate_junit import render_gate_junit


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with budgets and one run on an H200."""
    monkeypatch.chdir(tmp_path)
    return budgets_and_a_run(tmp_path)


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
