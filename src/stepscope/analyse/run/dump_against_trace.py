"""Dumps held against traces of the same request: a stage cannot be shorter than the GPU was busy with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepscope.analyse.results import RankReport, RunSummary
from stepscope.analyse.trace.trace_trust import TOLERATED


def disagreements(runs: Sequence[RunSummary], ranks: Sequence[RankReport]) -> tuple[str, ...]:
    """A reason for each stage or step of a dump that is shorter than its GPU work in the trace.

    Such a time is that of a host timer around asynchronous launches. Only runs and traces that carry the same
    request id and rank are held against each other.
    """
    return tuple(
        reason
        for run in runs
        for rank in ranks
        if rank.request_id == run.request_id and rank.rank == run.rank
        for reason in (*_steps(run, rank), *_stages(run, rank))
    )


def _steps(run: RunSummary, rank: RankReport) -> Iterable[str]:
    measured = {step.index: step.duration_ms for step in run.steps}
    for step in rank.steps:
        duration_ms = measured.get(step.index)
        if duration_ms is not None and _impossible(duration_ms, step.gpu_busy_ms):
            yield (
                f"step {step.index} took {duration_ms:.1f} ms by the dump, but the GPU was busy with it for "
                f"{step.gpu_busy_ms:.1f} ms by the trace"
            )


def _stages(run: RunSummary, rank: RankReport) -> Iterable[str]:
    measured: dict[str, float] = {}
    busy: dict[str, float] = {}
    for timed in run.stages:
        measured[timed.name] = measured.get(timed.name, 0.0) + timed.duration_ms
    for traced in rank.stages:
        if not traced.inferred:
            busy[traced.name] = busy.get(traced.name, 0.0) + traced.gpu_busy_ms
    for name, busy_ms in busy.items():
        if name in measured and _impossible(measured[name], busy_ms):
            yield (
                f"{name} took {measured[name]:.1f} ms by the dump, but the GPU was busy with it for "
                f"{busy_ms:.1f} ms by the trace"
            )


def _impossible(duration_ms: float, busy_ms: float) -> bool:
    return busy_ms > duration_ms * (1 + TOLERATED)
