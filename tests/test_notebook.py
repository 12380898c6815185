"""``%load_ext stepscope`` and ``%%stepscope`` in a real IPython shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipelines

IPython = pytest.importorskip("IPython")


@pytest.fixture
def shell(sd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A shell with the extension loaded and a pipeline in its namespace."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    shell.run_line_magic("load_ext", "stepscope")
    shell.push({"pipe": sd, "pipelines": pipelines})
    yield shell
    shell.run_line_magic("unload_ext", "stepscope")


def displayed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    return shown


def test_a_cell_runs_as_ever_and_its_report_follows(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its variables are the notebook's; in a terminal the report is text."""
    shell.run_cell("%%stepscope\npicture = pipelines.sd(pipe, 3)\nprint('in the cell')")
    out = capsys.readouterr().out

    assert shell.user_ns["picture"].shape == (1, 32, 32, 3)
    assert out.index("in the cell") < out.index("DenoisingStage")


def test_in_a_notebook_the_report_is_shown_inline(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the session itself, which shows as a page; the variable holds it."""
    shown = displayed(monkeypatch)
    shell.kernel = object()  # what a notebook's shell has
    shell.run_cell(
        "%%stepscope --profile --num-profiled-timesteps 2 --session found\npicture = pipelines.sd(pipe, 4)"
    )
    session = shell.user_ns["found"]

    assert shown == [session]
    assert session._repr_html_().startswith("<iframe ")
    assert session.calls[0].run.traces[0].steps == (1, 2)


def test_a_cell_that_fails_shows_its_error_and_what_was_measured(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is lost, nothing stays installed."""
    shell.run_cell("%%stepscope\npipelines.sd(pipe, 1)\n1 / 0")
    out = capsys.readouterr().out

    assert "ZeroDivisionError" in out
    assert "DenoisingStage" in out


def test_records_are_saved_where_it_is_asked(shell: Any, tmp_path: Path) -> None:
    """--save DIR."""
    shell.run_cell(f"%%stepscope --save '{tmp_path / 'run'}'\npipelines.sd(pipe, 1)")

    assert (tmp_path / "run" / "run.json").exists()


MISTAKES = [
    ("--profil", "Did you mean --profile?"),
    ("--profile-all-stages", "Add --profile"),
    ("--session 3x", "is no name for a variable"),
    ("'", "cannot be split"),
]


@pytest.mark.parametrize(("line", "said"), MISTAKES)
def test_a_mistake_is_one_line_and_the_cell_does_not_run(
    shell: Any, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """As at the command line."""
    shell.run_cell(f"%%stepscope {line}\nprint('ran')")
    out = capsys.readouterr().out

    assert said in out
    assert "ran" not in out.replace("stepscope: error", "")
    assert "Traceback" not in out


def test_a_cell_without_a_pipeline_says_so(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """And is a cell like any other."""
    shell.run_cell("%%stepscope\nvalue = 3")

    assert shell.user_ns["value"] == 3
    assert "no call was seen" in capsys.readouterr().out


def test_unloading_takes_the_magic_away(shell: Any) -> None:
    """And loading brings it back."""
    shell.run_line_magic("unload_ext", "stepscope")
    assert shell.find_cell_magic("stepscope") is None
    shell.run_line_magic("load_ext", "stepscope")
    assert shell.find_cell_magic("stepscope") is not None
