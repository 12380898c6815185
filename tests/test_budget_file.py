"""The budget file: read whatever editor saved it, refused where it would check nothing."""

import re
from pathlib import Path

import pytest

from gates import BUDGETS, budgets_and_a_run
from stepscope.analyse import findings
from stepscope.cli import main
from stepscope.model.errors import UnreadableInputError
from stepscope.record.budget_reader import read_budgets


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with budgets and one run on an H200."""
    monkeypatch.chdir(tmp_path)
    return budgets_and_a_run(tmp_path)


def test_every_finding_can_be_forbidden() -> None:
    """The ids that a budget file may name are those that the rules give."""
    folder = Path(findings.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "__init__.py")
    given_ids = set(re.findall(r'"((?:[a-z]+)\.[a-z0-9_]+)"', text))
    assert given_ids == set(findings.FINDING_IDS)


def test_a_budget_file_saved_by_a_windows_editor_is_read(here) -> None:
    """A byte order mark and carriage returns change nothing."""
    text = BUDGETS.replace("DecodingStage = 60", "DecodingStage = 90").replace("\n", "\r\n")
    (here / "budgets.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert main(["gate", "--budget", "budgets.toml", "perf.json"]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default]\ntotl_ms = 1\n", "(did you mean total_ms?)."),
        ('[gpu."H200"]\nstages = 3\n', "stages"),
        ("[budget]\ntotal_ms = 1\n", "unknown key budget"),
        ("[rules]\nno_syncs = true\n", "no_sync"),
        ("[default]\ntotal_ms = -1\n", "positive"),
        ("[default]\ntotal_ms = nan\n", "positive"),
        ("[baseline]\nlast = 2\nat_least = 5\n", "at_least"),
        ("not toml", "no budget file"),
        ("", "asks for nothing"),
        ("# only a comment\n", "asks for nothing"),
        ("a = " + "[" * 9_000 + "]" * 9_000, "nested too deeply"),
        ('[gpu.""]\ntotal_ms = 1\n', "every device"),
        ('[gpu." "]\ntotal_ms = 1\n', "every device"),
        ("[baseline]\nallow_percent = nan\n", "allow_percent"),
        ("[baseline]\nallow_percent = -5\n", "allow_percent"),
        ("[rules]\nforbid_findings = ['copies.pagable']\n", "Did you mean copies.pageable"),
        ("[default]\ntotal_ms = " + "9" * 5_000, "no budget file"),
        ("[default]\ntotal_ms = 1\ntotal_ms = 2\n", "no budget file"),
    ],
)
def test_a_budget_file_that_would_check_nothing_is_refused(here, capsys, text, words) -> None:
    """Misspelt keys, bad limits and broken TOML are named; a typo never makes a gate pass."""
    (here / "budgets.toml").write_text(text)
    assert main(["gate", "--budget", "budgets.toml", "perf.json"]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_budget_file_is_a_named_error(tmp_path) -> None:
    """No traceback for a path that is not there."""
    with pytest.raises(UnreadableInputError):
        read_budgets(tmp_path / "none.toml")
