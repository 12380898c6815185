"""What docs/compare.md shows is what the commands take."""

import re
from pathlib import Path

import pytest
import yaml

from stepscope.cli import build_parser
from stepscope.record.budget_reader import read_budgets

DOCS = (Path(__file__).parent.parent / "docs" / "compare.md").read_text(encoding="utf-8")


def block(language) -> str:
    return re.search(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)[1]


def test_the_budget_file_in_the_docs_is_valid(tmp_path) -> None:
    """Every key of the example is one that the reader knows."""
    path = tmp_path / "budgets.toml"
    path.write_text(block("toml"))
    budgets = read_budgets(path)
    assert budgets.gpu["H200"].stages["DecodingStage"] == 120
    assert budgets.rules.no_sync_in_loop
    assert budgets.baseline.last == 10


def test_the_workflow_in_the_docs_is_yaml() -> None:
    """The example workflow parses, and its gate is a command that exists."""
    steps = yaml.safe_load(block("yaml"))["jobs"]["gate"]["steps"]
    assert any("stepscope gate" in step.get("run", "") for step in steps)


@pytest.mark.parametrize("line", re.findall(r"^    stepscope (.*?)(?:\s{2,}#.*)?$", DOCS, re.MULTILINE))
def test_every_command_line_in_the_docs_parses(line) -> None:
    """Flags in the examples exist; '...' stands for more of the same."""
    import shlex

    words = [word for word in shlex.split(line.replace("[more.json ...]", "")) if word != "..."]
    if words[0] == "sweep" and "--" not in words:
        words += ["--", "generate"]
    build_parser().parse_args(words)
