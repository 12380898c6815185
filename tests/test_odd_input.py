"""Nonsense in flags, files and names: one line with a remedy, nothing destroyed, nothing recorded lost."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

import stepscope
from stepscope.cli import main
from stepscope.model.errors import RunFailedError, UsageError
from stepscope.record.atomic import keep_existing, write_atomic
from stepscope.record.run_record import read_run
from stepscope.session.generate_flags import options_of

SMALL = {"model_path": "tiny/flux.1-schnell", "num_inference_steps": 1, "warmup": False}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--guidance-scale", "nan"], "nan is not a finite number"),
        (["--guidance-scale=-inf"], "-inf is not a finite number"),
        (["--lora-scale", "1e400"], "1e400 is not a finite number"),
        (["--height", "9" * 25], "is more than 2147483647"),
        (["--num-outputs-per-prompt", "5000"], "at most 4096 in one run"),
        (["--seed", str(2**64)], "is out of range"),
        (["--seed", str(2**64 - 1), "--num-outputs-per-prompt", "2"], "is out of range"),
        (["--diffusers-kwargs", '{"height": NaN}'], "NaN is no number"),
        (["--model-path", "x" * 500], "There is no model"),
        (["--model-path", ""], "--model-path is empty"),
        (["--run-dir", ""], "--run-dir is empty"),
        (["--perf-dump-path", "x" * 300], "a name in it is too long"),
        (["--run-dir", "~nobody-of-that-name/x"], "cannot be a path"),
        (["--config", "nul.yaml"], "it holds a NUL character"),
        (["--config", "twice.yaml"], "seed is given twice"),
        (["--config", "tag.yaml"], "could not determine a constructor"),
        (["--run-dir", "run", "--perf-dump-path", "run"], "is where something else of the run goes"),
        (["--run-dir", "run", "--perf-dump-path", "run/run.json"], "is where something else of the run goes"),
        (["--profile", "--profile-dir", "t", "--perf-dump-path", "./t"], "is where something else"),
    ],
)
def test_nonsense_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, the reason, and no traceback."""
    Path("nul.yaml").write_text('run-dir: "a\\0b"')
    Path("twice.yaml").write_text("seed: 1\nprompt: x\nseed: 2")
    Path("tag.yaml").write_text("seed: !!python/object/apply:os.system ['touch pwned']")

    assert main(["generate", "--prompt", "x", "--no-warmup", *words]) == 2

    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert names() == ["nul.yaml", "tag.yaml", "twice.yaml"]


def test_prompt_files_from_other_systems_are_split_at_line_ends_only() -> None:
    """A byte order mark is no part of the first prompt; a line separator inside a prompt ends none."""
    Path("p.txt").write_bytes("\ufeffcat\r\n\r\na\u2028b\x0bc\x85d\r\n".encode())

    assert [one.prompt for one in options_of({"prompt_path": "p.txt"}).requests] == [
        "cat",
        "a\u2028b\x0bc\x85d",
    ]


def test_a_prompt_that_is_no_utf8_is_recorded() -> None:
    """A file name's or a shell's stray bytes come as lone surrogates; the record must not be lost to them."""
    stepscope.generate(prompt="a \udcff", perf_dump_path="perf.json", run_dir="run", **SMALL)

    assert json.loads(Path("perf.json").read_text())["meta"]["prompt"] == "a \\udcff"
    assert read_run(Path("run/run.json")).workload.prompt == "a \\udcff"


def test_a_pipe_given_as_the_dump_stays_one() -> None:
    """/dev/null, /dev/stdout, a fifo: written to, never renamed or replaced."""
    os.mkfifo("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()))
    reader.start()

    assert keep_existing(Path("pipe")) is None
    write_atomic(Path("pipe"), b"dump")

    reader.join(10)
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


def test_a_write_failure_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a warning of the record; at the terminal the error line is enough."""
    from stepscope.session import keep

    def full(*_: object) -> None:
        raise RunFailedError("cannot write perf.json: No space left on device.", remedy="Free some space.")

    monkeypatch.setattr(keep, "write_dump", full)
    words = "generate --model-path tiny/flux.1-schnell --num-inference-steps 1 --no-warmup --no-save-output"

    assert main([*words.split(), "--prompt", "x", "--perf-dump-path", "perf.json"]) == 1

    said = capsys.readouterr()
    assert (said.out + said.err).count("No space left on device") == 1


def test_a_reader_that_goes_away_is_no_failure_of_the_pipeline(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``| head -1``: no traceback; the files are written."""
    from stepscope.cli import generate

    def broken(_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(generate, "_print", broken)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    words = "generate --model-path tiny/flux.1-schnell --num-inference-steps 1 --no-warmup --run-dir run"

    assert main([*words.split(), "--prompt", "x"]) == 141

    assert "Traceback" not in capfd.readouterr().err
    assert Path("run/run.json").exists()


def test_any_fault_while_files_are_written_costs_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that nobody can read as media: the dump and the record are written, the fault is raised."""
    from stepscope.session import keep

    def odd(*_: object, **__: object) -> None:
        raise ValueError("an odd result")

    monkeypatch.setattr(keep, "media_of", odd)
    with pytest.raises(ValueError, match="an odd result"):
        stepscope.generate(prompt="x", perf_dump_path="perf.json", run_dir="run", **SMALL)

    assert "ValueError: an odd result" in json.loads(Path("perf.json").read_text())["warnings"]
    assert read_run(Path("run/run.json")).outputs == ()


def test_an_empty_prompt_is_a_prompt() -> None:
    """Unconditional generation; every other empty value is a mistake."""
    assert options_of({"prompt": "", "negative_prompt": ""}).requests[0].prompt == ""
    with pytest.raises(UsageError, match="--lora-path is empty"):
        options_of({"prompt": "x", "lora_path": ""})
