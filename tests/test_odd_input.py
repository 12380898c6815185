"""Nonsense in flags, files and names: one line with a remedy, nothing destroyed, nothing recorded lost."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from diffusers import QwenImagePipeline

import stepscope
from stepscope.cli import main
from stepscope.model.errors import RunFailedError, UsageError
from stepscope.record.abandoned import in_use, remove_abandoned
from stepscope.record.atomic import keep_existing, write_atomic
from stepscope.record.run_record import read_run
from stepscope.session import keep as keep_module
from stepscope.session import keep_trace as keep_trace_module
from stepscope.session.generate import generate as session_generate
from stepscope.session.generate_flags import options_of
from stepscope.session.rescue import or_elsewhere, scratch_parent

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


@pytest.mark.parametrize(
    "words",
    [["generate", "--prompt", "x"], ["run", "--perf-dump-path", "p.json", __file__]],
    ids=lambda words: words[0],
)
def test_a_current_folder_that_is_gone_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scratch folder that was cleared away under the shell."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert main(words) == 1
    assert capsys.readouterr().err.startswith("stepscope: error: the current folder cannot be used")


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


def test_prompts_after_a_failed_one_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was recorded of the others stays; how many were not run is said."""
    plain = QwenImagePipeline.check_inputs

    def check(self: Any, prompt: Any, *arguments: Any, **more: Any) -> None:
        if prompt == "b":
            raise ValueError("not this one")
        plain(self, prompt, *arguments, **more)

    monkeypatch.setattr(QwenImagePipeline, "check_inputs", check)
    flags = ["--num-inference-steps", "1", "--perf-dump-path", "p.json", "--no-save-output"]
    assert main(["generate", "--prompt", "a", "b", "c", "d", *flags]) == 1
    assert "stepscope: warning: of 4 prompts the last 2 were not run." in capsys.readouterr().err
    assert sorted(Path().glob("p*.json")) == [Path("p-1.json"), Path("p.json")]


def test_a_file_name_can_be_printed_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the encoding lacks is written as an escape, by every command that names a file."""
    dump = stepscope.generate(prompt="x", num_inference_steps=1, save_output=False, profile=True)[0]
    assert dump.trace_path is not None
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as plain:
        monkeypatch.setattr(sys, "stdout", plain)
        assert main(["slice", str(dump.trace_path), "--steps", "0:1", "-o", "ü.trace.json.gz"]) == 0
        assert b"\\xfc.trace.json.gz" in plain.buffer.getvalue()  # type: ignore[attr-defined]


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
        timeout=120,
    )
    assert run.returncode == 0
    assert Path("run/run.json").exists()


def test_a_disk_that_the_export_fills_still_takes_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The raw export is gone before the small files are written, also where no trace could be made of it."""
    from stepscope.session import keep

    seen: list[list[Path]] = []
    write_run, save_media = keep.write_run, keep.save_media

    def raw() -> list[Path]:
        return [path for path in Path("run").rglob("*.json") if ".stepscope-" in str(path)]

    def fail(*_: object, **__: object) -> None:
        assert raw()
        raise RunFailedError("No space left on device")

    monkeypatch.setattr(keep, "keep_trace", fail)
    monkeypatch.setattr(keep, "save_media", lambda *a, **k: (seen.append(raw()), save_media(*a, **k))[1])
    monkeypatch.setattr(keep, "write_run", lambda *a: (seen.append(raw()), write_run(*a))[1])

    with pytest.raises(RunFailedError):
        stepscope.generate(prompt="x", profile=True, run_dir="run", **SMALL)

    assert seen == [[], []]
    assert read_run(Path("run/run.json")).outputs


def test_what_a_full_disk_does_not_take_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dump, run record, picture and trace of a run whose disk fills meanwhile: written, and named."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    places = [tmp_path / name for name in ("dumps", "run", "outputs", "logs")]

    def full(write: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any, **more: Any) -> Any:
            path = [argument for argument in arguments if isinstance(argument, Path)][-1]
            if any(place in [path, *path.parents] for place in places):
                raise RunFailedError("cannot write: No space left on device.")
            return write(*arguments, **more)

        return refuse

    for name in ("write_dump", "write_run", "save_media"):
        monkeypatch.setattr(keep_module, name, full(getattr(keep_module, name)))
    monkeypatch.setattr(keep_trace_module, "write_trace", full(keep_trace_module.write_trace))
    options = options_of(
        {
            "prompt": "x",
            "num_inference_steps": 2,
            "perf_dump_path": places[0] / "perf.json",
            "run_dir": places[1],
            "output_path": places[2],
            "profile_dir": places[3],
            "profile": True,
            "trace_detail": "ops",
        }
    )
    [result] = session_generate(options)

    assert isinstance(result.error, RunFailedError)
    kept = {path.name.rpartition(".")[2] for path in (tmp_path / "temporary").rglob("*.*")}
    assert kept == {"json", "png", "gz"}
    assert result.dump_path is not None
    assert result.dump_path.name == "perf.json"
    assert result.run_directory is not None
    assert read_run(result.run_directory / "run.json").incomplete_reason is None
    assert result.trace_path is not None
    assert Path(result.trace_path).exists()
    told = [text for text in result.run.warnings if text.startswith("what could not be written to")]
    assert [text.split()[6] for text in told] == [str(places[at]) for at in (3, 2, 1, 0)]


def test_where_neither_place_takes_it_the_first_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is left of the second."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def write(folder: Path) -> Path:
        raise RunFailedError(f"not to {folder.name}")

    with pytest.raises(RunFailedError, match="not to here"):
        or_elsewhere(write, Path("here"), lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("free_beside", "free_elsewhere", "moves"),
    [(1 << 20, 1 << 30, True), (1 << 20, 1 << 19, False), (1 << 40, 1 << 41, False)],
)
def test_an_export_goes_where_there_is_room(
    free_beside: int, free_elsewhere: int, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profiler writes it once: on a small disk of traces what does not fit would be lost."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    free = {tmp_path: free_beside, tmp_path / "temporary": free_elsewhere}
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free[Path(path)]))
    assert scratch_parent(tmp_path) == (tmp_path / "temporary" if moves else tmp_path)


def test_what_a_killed_process_left_is_cleared_away() -> None:
    """Its scratch folder goes with the next trace; one in use, and what is not ours, stays."""
    left, used, foreign = Path("logs/.stepscope-a"), Path("logs/.stepscope-b"), Path("logs/.stepscope-c")
    for folder in (left, used, foreign):
        folder.mkdir(parents=True)
    with in_use(left):
        (left / "raw.json").touch()

    with in_use(used):
        remove_abandoned(Path("logs"))

    assert not left.exists()
    assert used.exists()
    assert foreign.exists()


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
