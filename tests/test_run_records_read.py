"""A run record, what ``--run-dir`` leaves as run.json, is read wherever a perf dump is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runs import three_stages
from stepscope.analyse.run.reconcile import reconcile
from stepscope.cli import main
from stepscope.record.perf_dump import write_dump
from stepscope.record.run_record import write_run
from stepscope.session.compare import compare_files
from stepscope.session.dumps import read_dumps
from stepscope.session.report import report_files


def test_a_run_record_gives_the_report_of_its_dump(tmp_path: Path) -> None:
    """The same stages, steps and trust; only the path differs."""
    record = write_run(three_stages(), tmp_path / "run.json")
    dump = write_dump(reconcile(three_stages()), tmp_path / "perf.json")
    (from_record,), (from_dump,) = report_files([record]).report.runs, report_files([dump]).report.runs
    assert from_record.stages == from_dump.stages
    assert from_record.steps == from_dump.steps
    assert from_record.trust == from_dump.trust
    assert read_dumps(record) == (reconcile(three_stages()),)


def test_a_run_folder_is_one_run(tmp_path: Path) -> None:
    """The record and the dump in it are the same run; without a dump the record counts."""
    write_run(three_stages(), tmp_path / "run.json")
    assert len(report_files([tmp_path]).report.runs) == 1
    write_dump(reconcile(three_stages()), tmp_path / "perf.json")
    assert len(report_files([tmp_path]).report.runs) == 1


def test_run_records_are_compared_and_gated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """compare and gate take them too."""
    record = write_run(three_stages(), tmp_path / "run.json")
    assert compare_files([record], [[record]]).comparisons
    budget = tmp_path / "budgets.toml"
    budget.write_text("[default]\ntotal_ms = 0.001\n")
    assert main(["gate", "--budget", str(budget), str(record), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
