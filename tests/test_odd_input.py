"""Nonsense in flags, prompts and files of flags: one line with a remedy, and nothing recorded lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from diffusers import QwenImagePipeline

import stepscope
from stepscope.cli import main
from stepscope.model.errors import UsageError
from stepscope.record.run_record import read_run
from stepscope.session.generate_flags import options_of

SMALL = {"model_path": "tiny/flux.1-schnell", "num_inference_steps": 1, "warmup": False}


pytestmark = pytest.mark.usefixtures("own_folder")


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


def test_an_empty_prompt_is_a_prompt() -> None:
    """Unconditional generation; every other empty value is a mistake."""
    assert options_of({"prompt": "", "negative_prompt": ""}).requests[0].prompt == ""
    with pytest.raises(UsageError, match="--lora-path is empty"):
        options_of({"prompt": "x", "lora_path": ""})
