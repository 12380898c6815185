"""Sweeps that something happens to: odd files and axes, full disks, signals, memory. No point is lost."""

import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.cli import main
from stepscope.cli.sweep import _numbers, _resolutions
from stepscope.model.errors import RunFailedError, UnreadableInputError, is_out_of_memory
from stepscope.model.sweep import SweepRow
from stepscope.record.json_lines import read_lines
from stepscope.record.prompt_file import read_prompts
from stepscope.session.sweeping.sweep import Grid, LocalExecutor, planned, sweep
from stepscope.session.sweeping.worker import _failure
from stepscope.session.sweeping.worker_messages import Command, decoded, encoded
from sweeps import TWELVE, Silent, flags_of, options, rows_in, run, signal_when

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    ("content", "prompts"),
    [
        (b"a cat\r\na dog\r\n\r\n", ("a cat", "a dog")),
        (b"\xef\xbb\xbfa cat\n\n  \t\na dog", ("a cat", "a dog")),
        ("a\u2028b\x0cc\x85d\n".encode(), ("a\u2028b\x0cc\x85d",)),
        (b"a " * 100_000 + b"\nb\n", (("a " * 100_000).strip(), "b")),
    ],
)
def test_prompts_are_lines_whatever_wrote_them(tmp_path, content, prompts) -> None:
    """Windows' line ends and mark, blank lines, other separators inside a prompt, very long lines."""
    path = tmp_path / "prompts.txt"
    path.write_bytes(content)
    assert read_prompts(path) == prompts


@pytest.mark.parametrize("content", [b"", b"\n \n", bytes(range(256)), b"a\0b\n", "a cat".encode("utf-16")])
def test_what_is_no_file_of_prompts_is_said(tmp_path, content) -> None:
    """Empty, blank and binary files; a folder and a device too."""
    path = tmp_path / "prompts.txt"
    path.write_bytes(content)
    for wrong in (path, tmp_path, Path("/dev/null")):
        with pytest.raises(UnreadableInputError):
            read_prompts(wrong)


@pytest.mark.parametrize("size", ["0x0", "64x0", "²x²", "64x64,", "99999999999x64", "64", "64x64x64", "x"])
def test_a_size_that_is_none_is_refused_before_anything_runs(size) -> None:
    """Every point of it would fail."""
    with pytest.raises(Exception, match=r"64|0|²|x"):
        _resolutions(size)


@pytest.mark.parametrize("numbers", ["²", "4,,8", "99999999999", "4 8", "1e3"])
def test_counts_are_whole_numbers(numbers) -> None:
    """Superscripts count as digits to Python, but are no numbers."""
    with pytest.raises(Exception, match=r"not a whole number|is more than"):
        _numbers(numbers)


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere", "x" * 300])
@pytest.mark.parametrize("command", ["sweep", "bench"])
def test_a_folder_that_cannot_be_is_one_line(tmp_path, monkeypatch, capsys, command, place) -> None:
    """Before anything is loaded, without a traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    call = [command, "--dir", place, *(["--vs", ""] if command == "bench" else ["--steps", "1"])]
    assert main([*call, "--", "generate", "--prompt", "p"]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("stepscope: error: ")
    assert error.count("\n") == 1


def test_points_that_make_the_same_call_are_measured_once(tmp_path) -> None:
    """A variant that repeats the call's own flags, or a size given in both: one row, not two of one id."""
    asked = options(tmp_path, Grid(resolutions=((256, 256), (512, 256)), variants=("", "--width 256")))
    once = replace(asked, flags=lambda point: {**flags_of(point), "width": 256})
    assert len(planned(once)) == 1
    rows = sweep(once, LocalExecutor(once.runner), Silent())
    assert [row.point.variant for row in rows] == [""]
    assert len(read_lines(tmp_path / "sweep.jsonl", SweepRow)) == 1


def test_rows_that_cannot_be_written_end_the_sweep_before_the_first_point(tmp_path) -> None:
    """Not after it: what was measured would be lost."""
    (tmp_path / "sweep.jsonl").symlink_to("nowhere/x")

    class Never:
        def run(self, tasks, finished):
            pytest.fail("a point was run")

    with pytest.raises(RunFailedError, match=r"cannot write .*sweep\.jsonl"):
        sweep(options(tmp_path, TWELVE), Never(), Silent())


def test_a_disk_that_fills_up_in_a_row_loses_that_row_only(tmp_path) -> None:
    """The write fails in the middle of a line: the sweep ends with the reason, and later goes on there."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limits[1]))
    try:
        with pytest.raises(RunFailedError, match=r"cannot write .*sweep\.jsonl: File too large"):
            run(tmp_path, TWELVE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    path = tmp_path / "sweep.jsonl"
    assert not path.read_bytes().endswith(b"\n")
    whole = rows_in(path)[:-1]
    assert [row.status for row in run(tmp_path, TWELVE)] == ["ok"] * 12
    assert rows_in(path)[: len(whole)] == whole
    assert len(read_lines(path, SweepRow)) == 12


def test_a_point_that_failed_for_want_of_disk_is_no_row(tmp_path, monkeypatch) -> None:
    """A full disk fails every point: the sweep ends, and goes on once there is room."""

    def full(folder):
        raise RunFailedError(f"cannot write {folder}: No space left on device.")

    monkeypatch.setattr("stepscope.session.sweeping.sweep.check_writable", full)
    grid = Grid(resolutions=((256, 256), (256, 23), (512, 256)))
    with pytest.raises(RunFailedError, match="No space left"):
        run(tmp_path, grid)
    assert len(read_lines(tmp_path / "sweep.jsonl", SweepRow)) == 1
    monkeypatch.undo()
    assert [row.status for row in run(tmp_path, grid)] == ["ok", "failed", "ok"]


@pytest.mark.parametrize("ending", [b'{"id": "cut off', b"\xff\xfe{", b"{", b'{"id": 5}'])
def test_a_half_written_row_is_measured_again(tmp_path, ending) -> None:
    """A file cut in its last line, or ended by rubbish, goes on; a whole row of something else is no row."""
    run(tmp_path, Grid(steps=(4,)))
    path = tmp_path / "sweep.jsonl"
    path.write_bytes(path.read_bytes() + ending)
    rows = run(tmp_path, Grid(steps=(4, 8)))
    assert [row.status for row in rows] == ["ok", "ok"]


def test_a_file_of_something_else_is_refused(tmp_path) -> None:
    """Rows of ours are never appended to another program's file."""
    (tmp_path / "sweep.jsonl").write_text('{"event": "x"}\n{"event": "y"}\n')
    with pytest.raises(UnreadableInputError, match="line 1"):
        run(tmp_path, TWELVE)


def test_a_worker_that_leaves_no_dump_is_a_row(tmp_path) -> None:
    """It said that it ran. The other points go on."""
    liar = "import sys\nfor line in sys.stdin: print('{\"failure\": null}', flush=True)"
    asked = options(tmp_path, Grid(steps=(4, 8)))
    asked = replace(asked, runner=replace(asked.runner, worker_command=(sys.executable, "-c", liar)))
    rows = sweep(asked, LocalExecutor(asked.runner), Silent())
    assert [row.status for row in rows] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
        (SystemExit(0), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_failures(error, memory) -> None:
    """Whatever raised it, and where one error caused another."""
    assert is_out_of_memory(error) is memory
    assert _failure(error).out_of_memory is memory
    caused = RunFailedError("the model cannot be loaded.")
    caused.__cause__ = error
    assert is_out_of_memory(caused) is memory
    assert not is_out_of_memory(None)


def test_a_path_that_is_no_utf_8_reaches_the_worker() -> None:
    """File names and arguments are bytes; JSON's escapes keep them."""
    flags = {"prompt": "\udcff", "model": Path("a\udcfe"), "guidance_scale": 4.0}
    assert decoded(encoded(Command(do="run", flags=flags))).flags == {**flags, "model": "a\udcfe"}


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import stepscope.session.sweeping.point_runner as runner
import sweeps
from pathlib import Path
from stepscope.cli import main
real = runner.RunnerOptions
held_from = int(sys.argv[1]) if len(sys.argv) > 1 else None
command = sweeps.worker(Path({folder!r}), held_from=held_from)
runner.RunnerOptions = lambda folder: real(folder=folder, worker_command=command)
call = ["sweep", "--steps", "1,2,3,4,5,6,7,8,9,10,11,12", "--dir", {folder!r}]
raise SystemExit(main([*call, "--", "generate", "--prompt", "p"]))
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_what_was_measured_and_says_how_to_go_on(tmp_path, number, status) -> None:
    """Ctrl-C and a job's end: the shell's exit status, no traceback, no process left, every row whole."""
    folder = tmp_path / "sweep"
    script = SCRIPT.format(tests=str(TESTS), folder=str(folder))
    process = subprocess.Popen(
        [sys.executable, "-c", script, "3"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    signal_when(process, folder / "sweep.jsonl", 3, number)
    error = process.communicate(timeout=280)[1].decode()
    assert process.returncode == status
    assert "Traceback" not in error
    assert f"give --dir {folder} to go on" in error
    rows = read_lines(folder / "sweep.jsonl", SweepRow)
    assert len(rows) == 3
    assert {row.status for row in rows} == {"ok"}
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=280)
    assert done.returncode == 0
    ids = [row.id for row in read_lines(folder / "sweep.jsonl", SweepRow)]
    assert len(ids) == len(set(ids)) == 12
