"""What the runs of a report are called: by their id where it is short, else by their number.

The one place that names them; no view has a rule of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from stepscope.analyse.results import RunSummary

_SHORT = 16
"""An id of so many characters can stand before a sentence; a UUID has 36."""


def run_name(run: RunSummary) -> str:
    """What a run is called alone: its id, else its file."""
    return run.request_id or PurePath(run.path or "without a name").name


def run_label(run: RunSummary, runs: Sequence[RunSummary]) -> str:
    """What tells a run from the others, short: ``3f2a9c``, ``call 1``, ``http1``, ``call 1 rank 3``."""
    ranks = any(other.rank for other in runs)
    if len(runs) > 1 and ranks and len({other.request_id for other in runs}) == 1:
        return f"rank {run.rank}"
    return _call(run, runs) + (f" rank {run.rank}" if ranks else "")


def _call(run: RunSummary, runs: Sequence[RunSummary]) -> str:
    name = run_name(run)
    if len(runs) < 2 or len(name) <= _SHORT:
        return name
    blocks = [dict(other.workload).get("block", "") for other in runs]
    if all(0 < len(block) <= _SHORT for block in blocks) and len(set(blocks)) == len(blocks):
        return dict(run.workload)["block"]
    requests = list(dict.fromkeys(run_name(other) for other in runs))
    calls = {run_name(other): other.call_id for other in runs}
    if None not in calls.values() and len(set(calls.values())) == len(requests):
        return f"call {run.call_id}"
    return f"run {requests.index(name)}"


def run_heading(run: RunSummary, runs: Sequence[RunSummary]) -> str:
    """The same as a heading: ``Run 3f2a9c``, ``Call 1``."""
    label = run_label(run, runs)
    numbered = label.startswith(("call ", "run ", "rank "))
    return label.capitalize() if numbered else f"Run {label}"
