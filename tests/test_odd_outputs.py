"""Odd places to write to: pipes, links, folders, closed and full standard output; nothing is destroyed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.cli import main
from stepscope.model.errors import RunFailedError
from stepscope.record.atomic import keep_existing, write_atomic
from stepscope.record.run_record import read_run

SMALL = {"model_path": "tiny/flux.1-schnell", "num_inference_steps": 1, "warmup": False}


pytestmark = pytest.mark.usefixtures("own_folder")


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def test_a_pipe_given_as_the_dump_stays_one() -> None:
    """/dev/null, /dev/stdout, a fifo: written to, never renamed or replaced."""
    os.mkfifo("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()))
    reader.start()

    assert keep_existing(Path("pipe")) is None
    write_atomic(Path("pipe"), b"dump")

    reader.join(60)
    assert read == [b"dump"]
    assert Path("pipe").is_fifo()
    assert names() == ["pipe"]


def test_a_link_given_as_the_dump_stays_one() -> None:
    """What it leads to is written, even where nothing is there yet; what was there is kept."""
    Path("there").mkdir()
    Path("link.json").symlink_to("there/perf.json")

    write_atomic(Path("link.json"), b"1")
    assert keep_existing(Path("link.json")) == Path("there/perf.previous.json").absolute()
    write_atomic(Path("link.json"), b"2")

    assert Path("link.json").is_symlink()
    assert [path.read_bytes() for path in sorted(Path("there").iterdir())] == [b"2", b"1"]


def test_a_folder_is_never_renamed() -> None:
    """A dump path that has become a folder fails; the folder stays where it is."""
    Path("perf.json").mkdir()

    assert keep_existing(Path("perf.json")) is None
    with pytest.raises(RunFailedError):
        write_atomic(Path("perf.json"), b"")
    assert names() == ["perf.json"]


def test_a_name_that_just_fits_can_be_written() -> None:
    """255 bytes are a name's limit; the temporary one beside it is no longer."""
    name = "x" * 250 + ".json"
    write_atomic(Path(name), b"1")
    assert names() == [name]


def test_a_reader_that_goes_away_is_no_failure_of_the_pipeline(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``| head -1``: no traceback; the files are written."""
    from stepscope.cli import generate

    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(generate, "_print", broken)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    words = "generate --model-path tiny/flux.1-schnell --num-inference-steps 1 --no-warmup --run-dir run"

    assert main([*words.split(), "--prompt", "x"]) == 141

    assert "Traceback" not in capfd.readouterr().err
    assert Path("run/run.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "--prompt", "a", "b", "--num-inference-steps", "1", "--perf-dump-path", "p.json"],
        ["models"],
    ],
    ids=lambda words: words[0],
)
def test_a_standard_output_that_is_full_is_one_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Redirected to a full disk: no traceback, and no fault of the pipeline's."""
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(words) == 1
    said = capsys.readouterr().err
    assert said.startswith("stepscope: error: standard output cannot be written: No space left")
    assert said.count("\n") == 1
    assert Path("p.json").exists() == ("p.json" in words)


def test_every_prompt_can_be_printed_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several runs each line that names a prompt; none of the runs is lost."""
    flags = ["--num-inference-steps", "1", "--perf-dump-path", "p.json"]
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as plain:
        monkeypatch.setattr(sys, "stdout", plain)
        assert main(["generate", "--prompt", "Käse 🧀", "字", *flags]) == 0
        assert plain.errors == "strict"
        said = plain.buffer.getvalue()  # type: ignore[attr-defined]
    assert b"Run 2 of 2" in said
    assert Path("p-1.json").exists()


def test_a_file_name_can_be_printed_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the encoding lacks is written as an escape, by every command that names a file."""
    dump = stepscope.generate(prompt="x", num_inference_steps=1, save_output=False, profile=True)[0]
    assert dump.trace_path is not None
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as plain:
        monkeypatch.setattr(sys, "stdout", plain)
        assert main(["slice", str(dump.trace_path), "--steps", "0:1", "-o", "ü.trace.json.gz"]) == 0
        assert b"\\xfc.trace.json.gz" in plain.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_closed_standard_output_is_no_failure() -> None:
    """``>&- 2>&-``: the files are written, and no file takes the number of a standard stream."""
    script = (
        "import sys; from stepscope.cli import main; import os; "
        "status = main(['generate', '--model-path', 'tiny/flux.1-schnell', '--prompt', 'x', "
        "'--num-inference-steps', '1', '--no-warmup', '--run-dir', 'run']); "
        "assert all(os.path.samefile(f'/proc/self/fd/{n}', os.devnull) for n in (1, 2)); sys.exit(status)"
    )
    source = Path(__file__).parent.parent / "src"
    run = subprocess.run(
        ["sh", "-c", f'exec {sys.executable} -c "$0" >&- 2>&-', script],
        check=False,
        env=os.environ | {"PYTHONPATH": str(source)},
        timeout=280,
    )
    assert run.returncode == 0
    assert Path("run/run.json").exists()


def test_two_processes_in_one_run_directory_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other chose the folder while it was empty and wrote first: its records are kept beside ours."""
    from stepscope.session import generate as session

    Path("run").mkdir()
    observe_call = session.observe_call

    def other_first(*arguments: Any, **keywords: Any) -> Any:
        Path("run/run.json").write_text("theirs")
        Path("run/perf.json").write_text("theirs too")
        return observe_call(*arguments, **keywords)

    monkeypatch.setattr(session, "observe_call", other_first)
    [result] = stepscope.generate(prompt="x", run_dir="run", **SMALL)

    assert Path("run/run.previous.json").read_text() == "theirs"
    assert Path("run/perf.previous.json").read_text() == "theirs too"
    assert sum("existed" in warning for warning in result.run.warnings) == 2
    assert read_run(Path("run/run.json")).request_id == result.run.request_id
