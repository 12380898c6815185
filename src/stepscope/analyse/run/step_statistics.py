"""Whether a run's steps are uniform, and which stand out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepscope.analyse.results import StepStatistics, StepTime

ENOUGH_STEPS = 3
"""Below this many steps of a kind the kind is not judged by itself."""

UNIFORM_SPREAD = 0.10
UNIFORM_SLOWEST_RATIO = 1.5
OUTLIER_ABOVE = 1.5
OUTLIER_BELOW = 0.6
"""Shares of the median. Full-size pipelines on a quiet GPU keep within 2 % (facts: 350 ms a step, H200)."""


def step_statistics(steps: Sequence[StepTime]) -> StepStatistics | None:
    """Median, extremes and spread over the steps that are alike; None without steps."""
    if not steps:
        return None
    basis, counted = _alike(steps)
    durations = np.array([step.duration_ms for step in counted], dtype=np.float64)
    median = float(np.median(durations))
    low, high = (float(value) for value in np.percentile(durations, (10, 90)))
    slowest = counted[int(np.argmax(durations))]
    ratio = slowest.duration_ms / median if median > 0 else 1.0
    spread = (high - low) / median if median > 0 else 0.0
    return StepStatistics(
        count=len(counted),
        median_ms=median,
        minimum_ms=float(durations.min()),
        maximum_ms=float(durations.max()),
        slowest=slowest.index,
        slowest_ratio=ratio,
        spread=spread,
        uniform=spread <= UNIFORM_SPREAD and ratio <= UNIFORM_SLOWEST_RATIO,
        basis=basis,
    )


def mark_outliers(steps: Sequence[StepTime], statistics: StepStatistics | None) -> tuple[StepTime, ...]:
    """The steps, those far from the median with the difference in words."""
    if statistics is None or statistics.median_ms <= 0:
        return tuple(steps)
    usual_forwards = Counter(step.forwards for step in steps).most_common(1)[0][0]
    return tuple(
        replace(step, outlier=step.outlier or _words(step, statistics.median_ms, usual_forwards))
        for step in steps
    )


def _alike(steps: Sequence[StepTime]) -> tuple[str, Sequence[StepTime]]:
    """The steps to judge by, and in words which they are."""
    computed = [step for step in steps if step.work == "computed"]
    untraced = [step for step in computed if not step.traced and not step.profiler_warmup]
    if len(untraced) >= ENOUGH_STEPS:
        kinds = [word for word, left in (("computed", len(computed) < len(steps)),
                                         ("untraced", len(untraced) < len(computed))) if left]  # fmt: skip
        return (f"the {len(untraced)} {', '.join(kinds)} steps" if kinds else "all steps"), untraced
    if len(computed) >= ENOUGH_STEPS:
        return f"the {len(computed)} computed steps, traced ones too: fewer than 3 are untraced", computed
    return "all steps: too few to leave any out", steps


def _words(step: StepTime, median_ms: float, usual_forwards: int) -> str | None:
    ratio = step.duration_ms / median_ms
    if OUTLIER_BELOW <= ratio <= OUTLIER_ABOVE:
        return None
    return f"{ratio:.2g} times the median: {_cause(step, ratio, usual_forwards)}"


def _cause(step: StepTime, ratio: float, usual_forwards: int) -> str:
    if step.work != "computed" and ratio < 1:
        return f"{step.work.replace('_', ' ')} (cache)"
    if step.profiler_warmup:
        return "the profiler was starting"
    if step.forwards != usual_forwards:
        return f"{step.forwards} denoiser forwards, {usual_forwards} in most steps"
    if step.traced:
        return "traced"
    if step.index == 0 and ratio > 1:
        return "the first step (compilation, allocation or autotuning)"
    return "cause not recorded"
