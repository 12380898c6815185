"""``stepscope report`` from end to end, on small recorded traces and on what is no trace."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from stepscope.cli import main

DATA = Path(__file__).parent / "data" / "traces"
STACKS = DATA / "qwen_image_4layer_all_stages_stack_memory.trace.json.gz"
DUMP = {
    "timestamp": "2026-11-30T00:00:00+00:00", "request_id": "abc", "commit_hash": "N/A",
    "tag": "cli_generate", "total_duration_ms": 300.0,
    "steps": [{"name": "DenoisingStage", "duration_ms": 280.0}],
    "denoise_steps_ms": [{"step": 0, "duration_ms": 140.0}, {"step": 1, "duration_ms": 140.0}], "meta": {},
}  # fmt: skip


def report_json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict:
    """The JSON of a report that must succeed."""
    assert main(["report", *map(str, arguments), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("trace", sorted(DATA.glob("*.gz")), ids=lambda path: path.name.split(".")[0][-30:])
def test_every_recorded_trace_gives_a_report_that_keeps_its_schema(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kineto and Nsight, cut down to run without the shared folder."""
    assert main(["schema", "report"]) == 0
    schema = json.loads(capsys.readouterr().out)
    report = report_json(capsys, trace)

    jsonschema.validate(report, schema)
    assert report["ranks"][0]["gpu"]["kernel_count"] > 0
    assert report["source"] == [str(trace)]


def test_the_format_follows_the_suffix_of_the_output(tmp_path: Path) -> None:
    """-o report.html is a page, -o report.json is JSON."""
    for name, begins in (
        ("r.html", "<!doctype html"),
        ("r.json", "{"),
        ("r.md", ""),
        ("r.csv", "rank,trace"),
    ):
        assert main(["report", str(STACKS), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text().lower().startswith(begins)


def test_a_directory_gives_all_traces_in_it_grouped_by_request_and_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the order of the names on disk."""
    data = STACKS.read_bytes()
    for name in ("b-full_stages-global-rank1", "b-full_stages-global-rank0", "a-2_steps-global-rank0"):
        (tmp_path / f"{name}.trace.json.gz").write_bytes(data)
    (tmp_path / "perf.json").write_text(json.dumps(DUMP))
    (tmp_path / "notes.txt").write_text("not a trace")
    report = report_json(capsys, tmp_path)

    assert [(rank["request_id"], rank["rank"]) for rank in report["ranks"]] == [("a", 0), ("b", 0), ("b", 1)]
    assert [run["request_id"] for run in report["runs"]] == ["abc"]


def test_a_dump_alone_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SGLang's too: stages and steps of the run, no ranks."""
    path = tmp_path / "anything.txt"
    path.write_text(json.dumps(DUMP))
    report = report_json(capsys, path)

    assert report["ranks"] == []
    assert report["runs"][0]["stages"][0]["name"] == "DenoisingStage"


def test_the_first_line_says_whether_the_numbers_may_be_trusted(capsys: pytest.CaptureFixture[str]) -> None:
    """In the terminal view."""
    assert main(["report", str(STACKS)]) == 0
    assert capsys.readouterr().out.startswith("TRUSTED")


def _nothing(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_text("hello")


def _other_json(path: Path) -> None:
    path.write_text('{"a": 1}')


def _no_events(path: Path) -> None:
    path.write_text('{"traceEvents": []}')


def _other_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b"hello"))


def _database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")


def _metadata_only(path: Path) -> None:
    path.write_text('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}]}')


def _empty_directory(path: Path) -> None:
    path.mkdir()


def _missing(path: Path) -> None:
    """Nothing is made."""


@pytest.mark.parametrize(
    "make",
    [
        _nothing, _text, _other_json, _no_events, _other_gzip, _database, _metadata_only, _empty_directory,
        _missing,
    ],
)  # fmt: skip
def test_what_is_no_trace_gives_one_clear_line_and_status_2(
    make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, the path in the line."""
    path = tmp_path / "input.json"
    make(path)

    assert main(["report", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.strip().splitlines()) == 1
    assert str(path) in told.err


def test_a_cut_trace_is_reported_as_far_as_it_goes_with_a_warning_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing readable is thrown away, and no script takes it for a whole trace."""
    path = tmp_path / "cut.json"
    text = gzip.decompress(STACKS.read_bytes())
    path.write_bytes(text[: len(text) * 2 // 3])

    assert main(["report", str(path), "--format", "json"]) == 2
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert report["ranks"][0]["event_count"] > 100
    assert not report["trust"]["ok"]
    assert "cut.json" in told.err


def test_launches_without_any_gpu_event_are_a_partial_report_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The GPU was used, but its events are missing."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1,
              "dur": 2, "args": {"correlation": 1}}  # fmt: skip
    operator = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::add",
        "pid": 1,
        "tid": 1,
        "ts": 0.5,
        "dur": 3,
        "args": {},
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [operator, launch]}))

    assert main(["report", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out.startswith("UNTRUSTED")
    assert "no GPU events" in told.err


def test_a_trace_of_a_cpu_run_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was launched, so nothing is missing; the report says whose times these are."""
    operators = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"aten::op{i}",
            "pid": 1,
            "tid": 1,
            "ts": i,
            "dur": 1,
            "args": {},
        }
        for i in range(20)
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": operators}))
    report = report_json(capsys, path)

    assert report["ranks"][0]["gpu"] is None
    assert any("No GPU events" in warning for warning in report["warnings"])


def test_an_unreadable_input_beside_a_good_one_is_a_warning_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The good one is reported."""
    bad = tmp_path / "bad.json"
    bad.write_text("{}")

    assert main(["report", str(bad), str(STACKS), "--format", "json"]) == 2
    told = capsys.readouterr()
    assert len(json.loads(told.out)["ranks"]) == 1
    assert "bad.json" in told.err


def test_reporting_imports_no_torch() -> None:
    """On a laptop without it."""
    code = (
        "import sys; from stepscope.cli import main; "
        f"status = main(['report', {str(STACKS)!r}, '--format', 'json']); "
        "assert status == 0 and not {'torch', 'diffusers', 'transformers', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
