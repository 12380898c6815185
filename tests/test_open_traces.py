"""Recognising files from their content, directories of traces, and reports that need nsys."""

import gzip
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from kineto_files import SMALL, compact, document, indented, write
from nsight_files import Strings, call, export
from stepscope.model.errors import RunFailedError, UnreadableInputError
from stepscope.record.open import InputKind, read_trace, recognise, traces_in

TRACE = compact(document(SMALL))
RECORDED = Path(__file__).parent / "data" / "traces"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.txt", TRACE.encode(), InputKind.KINETO),
        ("a.sqlite", gzip.compress(TRACE.encode()), InputKind.KINETO),
        ("perf.json", zstandard.compress(TRACE.encode()), InputKind.KINETO),
        ("a", b"\xef\xbb\xbf  [ {\"name\": \"x\", \"ph\": \"X\"} ]", InputKind.KINETO),
        ("a", b"[" + b" " * 70_000 + b'{"ph": "X"}]', InputKind.KINETO),
        ("a", indented(document(SMALL, after=True)).encode(), InputKind.KINETO),
        ("a", b'{"x": {"x": "' + b"y" * 100_000 + b'"}, "traceEvents": []}', InputKind.KINETO),
        ("a.nsys-rep", b"\x0a\x0bNSYS", InputKind.NSIGHT_REPORT),
        ("a.qdrep", b"\x0a\x0bNSYS", InputKind.NSIGHT_REPORT),
        ("trace.json.gz", b'{"steps": [], "total_duration_ms": 1.0}', InputKind.PERF_DUMP),
        ("performance.log", b'{"total_duration_ms": 1}\n{"total_duration_ms": 2}\n', InputKind.PERF_DUMP),
        ("a", b'[{"denoise_steps_ms": []}]', InputKind.PERF_DUMP),
        ("run.json", b'{"request_id": "r", "call_id": 0, "clock": {}, "environment": {}, "workload": {}}',
         InputKind.RUN_RECORD),
        ("a", b'{"dependencies": {}}', InputKind.OTHER_JSON),
        ("trace.json", b"", InputKind.EMPTY),
        ("a", b'{"dependencies": {"x": ', InputKind.OTHER_JSON),
        ("a", b"[[0, 1], [", InputKind.OTHER_JSON),
        ("budgets.toml", b"[default]\ntotal_ms = 1\n", InputKind.OTHER),
        ("setup.cfg", b"\n[tool]\nname = x\n", InputKind.OTHER),
        ("trace.json.gz", b"PK\x03\x04zip", InputKind.OTHER),
    ],
)  # fmt: skip
def test_content_decides_not_the_name(tmp_path: Path, name: str, content: bytes, kind: InputKind) -> None:
    """Misnamed, packed and unusual files are told apart by what is in them."""
    (tmp_path / name).write_bytes(content)

    assert recognise(tmp_path / name) is kind


def test_databases_and_directories_are_recognised(tmp_path: Path) -> None:
    """A Nsight export under any name, packed too; a directory."""
    path = export(tmp_path / "t.json", Strings(), {"CUPTI_ACTIVITY_KIND_RUNTIME": [call(Strings(), 1)]})

    assert recognise(path) is InputKind.NSIGHT_SQLITE
    assert recognise(write(tmp_path / "t.gz", path.read_bytes())) is InputKind.NSIGHT_SQLITE
    assert recognise(tmp_path) is InputKind.DIRECTORY


def test_a_directory_gives_its_traces_by_request_and_rank(tmp_path: Path) -> None:
    """The ranks of one request are one group, in order; other files and hidden ones are left out."""
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("abc-5_steps-global-rank10.trace.json.gz", "abc-5_steps-global-rank2.trace.json.gz",
                 "def-full_stages-global-rank0.trace.json.gz", "sub/other.json",
                 ".hidden/x.json"):  # fmt: skip
        write(tmp_path / name, TRACE)
    (tmp_path / "perf.json").write_text('{"total_duration_ms": 1}')
    (tmp_path / "out.png").write_bytes(b"\x89PNG")
    (tmp_path / "loop").symlink_to(tmp_path)

    found = [(group.name, [file.rank for file in group.files]) for group in traces_in(tmp_path)]
    assert found == [("abc-5_steps", [2, 10]), ("def-full_stages", [0]), ("sub/other", [None])]


def test_a_directory_without_traces_is_refused(tmp_path: Path) -> None:
    """An empty folder, and one of other things."""
    (tmp_path / "a.txt").write_text("x")

    with pytest.raises(UnreadableInputError, match="holds no trace"):
        traces_in(tmp_path)


def fake_nsys(folder: Path, body: str) -> None:
    """An nsys on PATH that does what ``body`` says; ``$OUT`` is the path it was asked to write."""
    script = folder / "nsys"
    script.write_text(f'#!/bin/sh\nwhile [ "$1" != "--output" ]; do shift; done\nOUT="$2"\n{body}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def test_a_report_is_exported_by_the_users_own_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export goes to a temporary place and is removed; the trace bears the report's name and rank."""
    export(tmp_path / "made.sqlite", Strings(), {"CUPTI_ACTIVITY_KIND_RUNTIME": [call(Strings(), 1)]})
    fake_nsys(tmp_path, f'cp "{tmp_path}/made.sqlite" "$OUT"; echo "$OUT" > "{tmp_path}/where"')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    report = tmp_path / "q-rank1.nsys-rep"
    report.write_bytes(b"\x00report")

    trace = read_trace(report)
    assert (trace.path, trace.rank, len(trace.launches.name)) == (str(report), 1, 1)
    assert not Path((tmp_path / "where").read_text().strip()).exists()


def test_an_export_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nsys exits with 0 when it fails: the missing file counts, and its last words are passed on."""
    fake_nsys(tmp_path, 'echo "Importer error: wrong version"; exit 0')
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "q.nsys-rep"
    report.write_bytes(b"\x00report")

    with pytest.raises(UnreadableInputError, match="wrong version"):
        read_trace(report)


def test_without_nsys_the_exact_command_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy can be pasted into a shell, blanks in the path included."""
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "my report.nsys-rep"
    report.write_bytes(b"\x00report")

    with pytest.raises(UnreadableInputError) as caught:
        read_trace(report)
    assert (
        f"nsys export --type sqlite --force-overwrite true --output '{tmp_path}/my report.sqlite'"
        in caught.value.remedy
    )


def test_a_packed_export_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No place to unpack into is one line, with the place."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))

    with pytest.raises(RunFailedError, match="temporary file"):
        read_trace(RECORDED / "qwen_image_4layer.nsys.sqlite.gz")


@pytest.mark.skipif(shutil.which("mkfifo") is None, reason="no mkfifo here")
def test_a_pipe_in_a_directory_is_not_waited_for(tmp_path: Path) -> None:
    """Only regular files are looked into."""
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / "t.json", TRACE)

    assert [group.name for group in traces_in(tmp_path)] == ["t"]


def test_reading_a_trace_needs_no_torch() -> None:
    """``report`` works on a laptop without torch, pandas or the like."""
    code = (
        "import sys; from pathlib import Path; from stepscope.record.open import read_trace;"
        f"read_trace(Path({str(RECORDED / 'ulysses2-global-rank0.trace.json.gz')!r}));"
        "assert not {'torch', 'diffusers', 'pandas', 'scipy', 'plotly'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
