"""The guide: every command in it is run, with the models' tiny twins; both languages have the same ones."""

from __future__ import annotations

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepscope.cli import main
from stepscope.session.viewing import view as view_module
from view_page import free_port, page

DOCS = Path(__file__).parent.parent / "docs"
ENGLISH, KOREAN = DOCS / "profiling.md", DOCS / "ko" / "profiling.md"
TWINS = {"Qwen/Qwen-Image": "tiny/qwen-image"}
FENCE = re.compile(r"(?:<!-- needs: (?P<needs>\w+) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)```", re.DOTALL)
IMAGE = re.compile(r"!\[([^\]]+)\]\(([^)]+)\)")
NVTX_UNDERSTOOD = "0.2.11"


@dataclass(frozen=True)
class Command:
    """One line of the guide. ``needs``: gpu, nsys, or nothing."""

    line: str
    needs: str

    @property
    def words(self) -> list[str]:
        words = [TWINS.get(word, word) for word in shlex.split(self.line)]
        return [name for word in words for name in (sorted(glob.glob(word)) if "*" in word else [word])]  # noqa: PTH207


def commands(path: Path) -> list[Command]:
    return [
        Command(line, fence["needs"] or "")
        for fence in FENCE.finditer(path.read_text(encoding="utf-8"))
        if fence["language"] == "sh"
        for line in fence["body"].splitlines()
    ]


def test_both_languages_have_the_same_commands_and_pictures() -> None:
    """So one run proves both; every picture has words for those who do not see it."""
    assert commands(ENGLISH) == commands(KOREAN)
    for path in (ENGLISH, KOREAN):
        pictures = IMAGE.findall(path.read_text(encoding="utf-8"))
        assert len(pictures) == 3
        assert all(text and (path.parent / name).is_file() for text, name in pictures)


def test_both_languages_show_the_same_outputs() -> None:
    """A recording renewed in one of them is renewed in the other."""
    recorded = [
        [fence["body"] for fence in FENCE.finditer(path.read_text(encoding="utf-8"))]
        for path in (ENGLISH, KOREAN)
    ]
    assert recorded[0] == recorded[1]


def test_the_korean_guide_is_complete() -> None:
    """Section by section, table row by table row, in Korean."""
    english, korean = (path.read_text(encoding="utf-8") for path in (ENGLISH, KOREAN))
    for pattern in (r"^#+ ", r"^\| ", r"^- ", r"^\*\*"):
        counts = [len(re.findall(pattern, text, re.MULTILINE)) for text in (english, korean)]
        assert counts[0] == counts[1], pattern
    prose = FENCE.sub("", korean)
    assert len(re.findall(r"[가-힣]", prose)) > 0.3 * len(re.findall(r"[A-Za-z]", prose))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guide")


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's commands follow each other in one folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("SSH_CONNECTION", "STEPSCOPE_PROFILE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("webbrowser.open", page)
    monkeypatch.setattr(view_module, "LINGER_S", 0.2)
    return folder


@pytest.fixture(scope="module")
def nsys_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, str]]:
    """An environment whose nvtx package is one that Debian's nsys understands."""
    cached: dict[str, str] = {}

    def make() -> dict[str, str]:
        if not cached:
            target = str(tmp_path_factory.mktemp("nvtx"))
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target]
            done = subprocess.run([*command, f"nvtx=={NVTX_UNDERSTOOD}"], capture_output=True, check=False)
            if done.returncode:
                pytest.skip(f"pip cannot install nvtx {NVTX_UNDERSTOOD} here")
            paths = [target, str(DOCS.parent / "src"), os.environ.get("PYTHONPATH", "")]
            cached.update(os.environ, PYTHONPATH=os.pathsep.join(path for path in paths if path))
        return cached

    return make


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(ENGLISH), ids=lambda command: command.line[:60])
def test_every_command_of_the_guide_runs(
    command: Command, here: Path, nsys_environment: Callable[[], dict[str, str]]
) -> None:
    """In the guide's order, each on what those before it left."""
    if command.needs == "gpu":
        pytest.skip("needs a GPU")
    if command.needs == "nsys":
        if shutil.which("nsys") is None:
            pytest.skip("no nsys on this machine: .ci/install-nsys")
        words = [sys.executable if word == "python" else word for word in command.words]
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-m", *words],
                cwd=here, env=nsys_environment(), capture_output=True, text=True, check=False, timeout=280,
            )  # fmt: skip
            if "failed at its start" not in done.stderr:  # nsys 2022.4 does at times, on a busy machine
                break
        assert done.returncode == 0, done.stderr
        assert "error" not in done.stderr
        return
    program, *words = command.words
    assert program == "stepscope"
    if words[0] == "view":
        words += ["--port", str(free_port())]
    assert main(words) == 0
