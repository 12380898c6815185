"""A gate as GitHub workflow commands: an error for each failed check, a notice for each skipped one."""

from __future__ import annotations

import re

from stepscope.analyse.comparison.gate_results import GateReport, Outcome
from stepscope.render.comparison import gate_tables as tables
from stepscope.render.names import visible

_LEVELS = {Outcome.FAILED: "error", Outcome.SKIPPED: "notice"}


def render_gate_github(report: GateReport) -> str:
    """One line a failed or skipped check, and one for the whole; no text can start a command of its own."""
    lines = [
        f"::{_LEVELS[check.outcome]} title={_property(f'stepscope gate: {check.name}')}"
        f"::{_data(f'{tables.title(result)}: {tables.message(check)}')}"
        for result in report.results
        for check in result.checks
        if check.outcome in _LEVELS
    ]
    return "\n".join([*lines, without_commands(_data(tables.headline(report)))]) + "\n"


def without_commands(text: str) -> str:
    """Text in which a runner finds no command: ``::name::`` begins a line, ``##[name]`` stands anywhere.

    A stage, file or kernel may be called so, and what is called so would mask, group or stop the log.
    """
    return re.sub(r"^(\s*):(?=:)", r"\1: ", text, flags=re.MULTILINE).replace("##[", "## [")


def _data(text: str) -> str:
    """Escaped as the runner's toolkit does it: percent, carriage return and line feed."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
