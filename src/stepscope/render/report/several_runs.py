"""Several runs in a few sentences: what they have in common, and the one that is not like the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from stepscope.analyse.results import RunSummary
from stepscope.render import units
from stepscope.render.names import visible
from stepscope.render.report.run_names import run_label
from stepscope.render.report.what_ran import model_sentence

_MOST_NAMED = 6

Labelled = tuple[str, str]
"""A label and a sentence."""


def several_runs_lines(runs: Sequence[RunSummary]) -> Iterator[Labelled]:
    """What was run and what it took, the runs together; the table of runs has each."""
    yield from models(runs)
    yield "Total", _total(runs)
    for run in runs:
        if run.incomplete_reason is not None:
            yield "Cut off", f"{run_label(run, runs)}: INCOMPLETE: {run.incomplete_reason}"
    if dominant := _dominant(runs):
        yield "Dominant", dominant
    if steps := _steps(runs):
        yield "Steps", steps


def models(runs: Sequence[RunSummary]) -> Iterator[Labelled]:
    """What was run: once where it was the same, else with which runs were of it."""
    told: dict[str, list[RunSummary]] = {}
    for run in runs:
        told.setdefault(model_sentence(run, named=len(runs) == 1), []).append(run)
    for text, those in told.items():
        if text:
            yield "Model", text if len(told) == 1 else f"{_named(those, runs)}: {text}"


def _total(runs: Sequence[RunSummary]) -> str:
    fastest, slowest = (choose(runs, key=lambda run: run.total_ms) for choose in (min, max))
    return (
        f"{units.duration(fastest.total_ms)} ({run_label(fastest, runs)}) to "
        f"{units.duration(slowest.total_ms)} ({run_label(slowest, runs)}) for the pipeline call, "
        f"median {units.duration(median(run.total_ms for run in runs))}"
    )


def _dominant(runs: Sequence[RunSummary]) -> str:
    """Which stage takes most time, and how much of each run that is."""
    by_stage: dict[str, list[RunSummary]] = {}
    for run in runs:
        if run.dominant_stage is not None:
            by_stage.setdefault(run.dominant_stage, []).append(run)
    return "; ".join(
        f"{visible(name)} in {_named(those, runs)}, {_shares(name, those)}"
        for name, those in by_stage.items()
    )


def _shares(name: str, runs: Sequence[RunSummary]) -> str:
    shares = [sum(stage.share for stage in run.stages if stage.name == name) for run in runs]
    low, high = units.share(min(shares)), units.share(max(shares))
    return f"{high} of it" if low == high else f"{low} to {high} of it"


def _steps(runs: Sequence[RunSummary]) -> str:
    """Medians, and which runs are not uniform."""
    known = [(run, run.step_statistics) for run in runs if run.step_statistics is not None]
    if not known:
        return ""
    medians = [statistics.median_ms for _, statistics in known]
    low, high = units.duration(min(medians)), units.duration(max(medians))
    text = f"median {low}" if low == high else f"median {low} to {high}"
    uneven = [run for run, statistics in known if not statistics.uniform]
    if not uneven:
        return f"{text}; uniform in {_named([run for run, _ in known], runs)}"
    run, statistics = max(
        ((run, statistics) for run, statistics in known if not statistics.uniform),
        key=lambda pair: pair[1].slowest_ratio,
    )
    return (
        f"{text}; NOT uniform in {_named(uneven, runs)}: the slowest is step {statistics.slowest} of "
        f"{run_label(run, runs)} with {units.duration(statistics.maximum_ms)}, "
        f"{units.ratio(statistics.slowest_ratio)} its median"
    )


def _named(those: Sequence[RunSummary], runs: Sequence[RunSummary]) -> str:
    """``both``, ``all 8``, ``call 0, call 2``, ``call 0, call 1 and 7 more``."""
    if len(those) == len(runs):
        return "both" if len(runs) == 2 else f"all {len(runs):,}"
    shown = ", ".join(run_label(run, runs) for run in those[:_MOST_NAMED])
    left = len(those) - _MOST_NAMED
    return f"{shown} and {left:,} more" if left > 0 else shown
