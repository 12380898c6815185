"""Whether a run's steps are uniform, and which stand out and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from stepscope.analyse.results import StepStatistics, StepTime
from stepscope.analyse.run.step_parts import UsualParts, usual_parts, where_it_differs

ENOUGH_STEPS = 3
"""Below this many steps of a kind the kind is not judged by itself."""

UNIFORM_SPREAD = 0.10
OUTLIER_ABOVE = 1.5
OUTLIER_BELOW = 0.6
"""Steps are uniform when their spread, the 90th minus the 10th percentile over the median, is at most 10 %
and no step takes more than 1.5 or less than 0.6 times the median.
Full-size pipelines on a quiet GPU keep within 2 % (facts: 350 ms a step, H200)."""


WHAT_TELLS_MORE = "a trace (--profile) shows what ran there"
_FIRST_UNKNOWN = "the first step, for a cause that was not recorded: the warm-up was steady"


def step_statistics(steps: Sequence[StepTime]) -> StepStatistics | None:
    """Median, extremes and spread over the steps that are alike; None without steps."""
    if not steps:
        return None
    basis, counted = _alike(steps)
    durations = np.array([step.duration_ms for step in counted], dtype=np.float64)
    median = float(np.median(durations))
    low, high = (float(value) for value in np.percentile(durations, (10, 90)))
    slowest = counted[int(np.argmax(durations))]
    odd = max(counted, key=lambda step: _distance(step.duration_ms, median))
    odd_ratio = odd.duration_ms / median if median > 0 else 1.0
    alone = not OUTLIER_BELOW <= odd_ratio <= OUTLIER_ABOVE
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
        uniform=spread <= UNIFORM_SPREAD and not alone,
        basis=basis,
        decided_by=_decided_by(spread, odd.index, odd_ratio),
        odd=odd.index,
        odd_ms=odd.duration_ms,
        odd_ratio=odd_ratio,
    )


def _distance(duration_ms: float, median_ms: float) -> float:
    """How many times slower or faster than the median; a step without duration is the farthest."""
    if median_ms <= 0 or duration_ms <= 0:
        return math.inf if median_ms > 0 else 1.0
    return max(duration_ms / median_ms, median_ms / duration_ms)


def _decided_by(spread: float, odd: int, ratio: float) -> str:
    said = f"spread {100 * spread:.1f} %"
    if spread > UNIFORM_SPREAD:
        return f"{said}, above {100 * UNIFORM_SPREAD:.0f} %"
    if ratio > OUTLIER_ABOVE:
        return f"step {odd} is above {OUTLIER_ABOVE:g}x the median"
    if ratio < OUTLIER_BELOW:
        return f"step {odd} is below {OUTLIER_BELOW:g}x the median"
    return f"{said} of at most {100 * UNIFORM_SPREAD:.0f} %"


def mark_outliers(
    steps: Sequence[StepTime], statistics: StepStatistics | None, *, steady: bool | None = None
) -> tuple[StepTime, ...]:
    """The steps, those far from the median with the cause in words; how far it is, each view says once.

    ``steady``: what the warm-up had reached before the call; None where it is not known.
    """
    if statistics is None or statistics.median_ms <= 0:
        return tuple(steps)
    usual_forwards = Counter(step.forwards for step in steps).most_common(1)[0][0]
    usual = usual_parts(_alike(steps)[1])
    settling = _after_a_trace(steps)

    def words(step: StepTime) -> str | None:
        ratio = step.duration_ms / statistics.median_ms
        if OUTLIER_BELOW <= ratio <= OUTLIER_ABOVE:
            return None
        after_a_trace = step.index in settling
        cause = _cause(step, ratio, usual_forwards, steady=steady, after_a_trace=after_a_trace)
        return cause or _place(step, usual, steady=steady)

    return tuple(replace(step, outlier=step.outlier or words(step)) for step in steps)


def _alike(steps: Sequence[StepTime]) -> tuple[str, Sequence[StepTime]]:
    """The steps to judge by, and in words which they are."""
    computed = [step for step in steps if step.work == "computed"]
    untraced = [step for step in computed if not step.traced and not step.profiler_warmup]
    if len(untraced) >= ENOUGH_STEPS:
        kinds = [word for word, left in (("computed", len(computed) < len(steps)),
                                         ("untraced", len(untraced) < len(computed))) if left]  # fmt: skip
        settled = [step for step in untraced if step.index not in _after_a_trace(steps)]
        chosen = settled if len(settled) >= ENOUGH_STEPS else untraced
        but = ", without the one right after the profiler" if len(chosen) < len(untraced) else ""
        return (f"the {len(chosen)} {', '.join(kinds)} steps{but}" if kinds else "all steps"), chosen
    if len(computed) >= ENOUGH_STEPS:
        return f"the {len(computed)} computed steps, traced ones too: fewer than 3 are untraced", computed
    return "all steps: too few to leave any out", steps


def _after_a_trace(steps: Sequence[StepTime]) -> set[int]:
    """Steps that begin where a profiler was stopped: on a drained device, with cold caches.

    Such a step takes 1.18 times as long as those after it (median of nine runs of three tiny models on a CPU,
    0.96 to 1.44).
    """
    return {after.index for step, after in pairwise(steps) if step.traced and not after.traced}


def _cause(
    step: StepTime, ratio: float, usual_forwards: int, *, steady: bool | None, after_a_trace: bool
) -> str:
    """What is known to have made a step odd; nothing where that was not recorded."""
    if step.work != "computed" and ratio < 1:
        return f"{step.work.replace('_', ' ')} (cache)"
    if step.profiler_warmup:
        return "the profiler was starting"
    if step.forwards != usual_forwards:
        return f"{step.forwards} denoiser forwards, {usual_forwards} in most steps"
    if step.traced:
        return "traced"
    if after_a_trace and ratio > 1:
        return "the first after the profiler had stopped"
    if step.index == 0 and ratio > 1 and not steady:
        return "the first step (compilation, allocation or autotuning)"
    return ""


def _place(step: StepTime, usual: UsualParts | None, *, steady: bool | None) -> str:
    """Where an odd step's time lies, as far as it was measured; why it took it was not."""
    first = steady and step.index == 0
    place = where_it_differs(step, usual)
    if not place:
        return _FIRST_UNKNOWN if first else "cause not recorded"
    return f"{'the first step, after a steady warm-up: ' if first else ''}{place}; {WHAT_TELLS_MORE}"
