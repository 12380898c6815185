"""Is a difference more than noise? Welch's t-test from scipy, Holm's correction, and samples in numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from stepscope.analyse.comparison.compare_results import Sample

ALPHA = 0.04
"""Welch's test with five runs a side, 200,000 pairs: at 0.03, 0.04, 0.05 it calls 2.5, 3.4, 4.4 % of A/A
pairs changed, finds 94.9, 96.7, 97.7 % of 3 % slowdowns in 1 % noise. 5 and 95 % are wanted of it, so 0.04
leaves room on both sides (benchmarks/null_experiment.py)."""


_MOST_RUNS = 100
"""More runs than this nobody makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WelchTest:
    """Two-sided p-value, and the interval of the difference of means relative to the base's mean."""

    p_value: float
    interval: tuple[float, float] | None


def sample_of(values: Sequence[float]) -> Sample | None:
    """The values with their median, mean and relative standard deviation; None without values."""
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    with np.errstate(over="ignore"):
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Sample(
        values=tuple(values),
        median=float(np.median(values)),
        mean=mean,
        spread=deviation / mean if mean else 0.0,
    )


def welch(base: Sample, new: Sample, *, alpha: float = ALPHA) -> WelchTest:
    """Welch's unequal-variances t-test of two samples of at least two values each.

    Values without any spread (bytes of memory, mostly) are compared as they are: equal or not.

    Raises:
        ValueError: a side has fewer than two values, or a value is not finite.

    """
    if min(len(base.values), len(new.values)) < 2 or not np.isfinite([*base.values, *new.values]).all():
        raise ValueError("a t-test needs two finite values on each side")
    if _flat(base) and _flat(new):
        change = new.mean / base.mean - 1 if base.mean else 0.0
        equal = math.isclose(base.mean, new.mean, rel_tol=1e-9)
        return WelchTest(p_value=1.0 if equal else 0.0, interval=(change, change))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one side without spread: the other has it
        result = stats.ttest_ind(np.asarray(new.values), np.asarray(base.values), equal_var=False)
        bounds = result.confidence_interval(1 - alpha)
    interval = (float(bounds.low) / base.mean, float(bounds.high) / base.mean) if base.mean else None
    return WelchTest(p_value=float(result.pvalue), interval=interval)


def runs_needed(base: Sample, new: Sample, *, half_width: float, alpha: float = ALPHA) -> str:
    """About how many runs a side would narrow the interval of the change to ``half_width``, in words.

    With the standard deviations seen; few runs know their own deviation badly, hence 'about'.
    """
    deviation = math.hypot(base.spread, new.spread * new.mean / base.mean)
    fewest = max(len(base.values), len(new.values)) + 1
    for runs in range(fewest, _MOST_RUNS + 1):
        quantile = float(stats.t.ppf(1 - alpha / 2, 2 * runs - 2))
        if quantile * deviation / math.sqrt(runs) <= half_width:
            return f"about {runs} runs a side"
    return f"more than {max(_MOST_RUNS, fewest)} runs a side"


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """P-values corrected for their number (Holm 1979, step-down), in the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, position in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[position]))
        corrected[position] = highest
    return tuple(corrected)


def _flat(sample: Sample) -> bool:
    """Whether the values differ by no more than rounding; scipy would divide by that."""
    return max(sample.values) - min(sample.values) <= 1e-9 * max(abs(sample.mean), 1e-300)
