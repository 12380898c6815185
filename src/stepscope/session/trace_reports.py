"""Reports of trace files, for commands that look at several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stepscope.analyse.results import RankReport
from stepscope.model.errors import UnreadableInputError

TraceReports = Callable[[Path], Sequence[RankReport]]
"""Reports of every rank in a trace file."""


def report_trace(path: Path) -> Sequence[RankReport]:
    """The report of each rank in ``path``."""
    raise UnreadableInputError(f"{path} is a trace: traces cannot be read yet.")
