"""A run and its trace, given together: each tells what the other cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepscope.analyse.findings.host import RECURS, SLOW_STEPS, named_steps
from stepscope.analyse.results import Finding, RankReport, RunSummary, Source, StepTime
from stepscope.analyse.run.recurrence import Recurrence, recurrence
from stepscope.analyse.run.step_statistics import WHAT_TELLS_MORE


def rank_with_run(rank: RankReport, runs: Sequence[RunSummary]) -> RankReport:
    """The trace with its call's number; its slow steps with how often the run has such, at what cost."""
    run = next((run for run in runs if _same(run, rank)), None)
    if run is not None and len(runs) > 1:
        rank = replace(rank, call_id=run.call_id)
    again = None if run is None else _recurs(run, rank)
    if run is None or again is None:
        return rank
    findings = [
        _recurring(one, again, len(run.steps)) if one.id == SLOW_STEPS else one for one in rank.findings
    ]
    return replace(rank, findings=tuple(findings))


def run_with_trace(run: RunSummary, ranks: Sequence[RankReport]) -> RunSummary:
    """The run without the advice to record a trace; its slow steps say what the trace shows of them."""
    rank = next((rank for rank in ranks if _same(run, rank) and rank.steps), None)
    if rank is None:
        return run
    source = next((one.source for one in rank.findings if one.id == SLOW_STEPS), None)
    again = _recurs(run, rank)
    shown = set(again.steps) if again else set()
    steps = [_told(step, source if step.index in shown else None) for step in run.steps]
    return replace(run, steps=tuple(steps))


def _same(run: RunSummary, rank: RankReport) -> bool:
    return bool(run.request_id) and run.request_id == rank.request_id and run.rank == rank.rank


def _recurs(run: RunSummary, rank: RankReport) -> Recurrence | None:
    slow = [step for step in rank.steps if step.outlier]
    if not slow or all(one.id != SLOW_STEPS for one in rank.findings):
        return None
    return recurrence(run.steps, max(slow, key=lambda step: step.duration_ms).index)


def _recurring(finding: Finding, again: Recurrence, count: int) -> Finding:
    steps = named_steps(again.steps)
    often = f"Every {_ordinal(again.every)} step is" if again.every else f"Steps {steps} are"
    each_ms = again.extra_ms / len(again.steps)
    return replace(
        finding,
        title=f"{often} slower than the others",
        evidence=(
            f"{finding.evidence}; in the whole run steps {steps} (of {count:,}) are slow, "
            f"{each_ms:.1f} ms more each, most of it {again.part}"
        ),
        cost_ms=again.extra_ms,
        remedy=RECURS,
    )


def _told(step: StepTime, source: Source | None) -> StepTime:
    if step.outlier is None or WHAT_TELLS_MORE not in step.outlier:
        return step
    shows = f"; the trace shows {source.function} ({source.file}:{source.line})" if source else ""
    return replace(step, outlier=step.outlier.replace(f"; {WHAT_TELLS_MORE}", shows))


def _ordinal(number: int) -> str:
    """``2nd``, ``4th``."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
