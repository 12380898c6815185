"""Where one stage becomes the longest in place of another: told with its uncertainty, or why it is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from stepscope.analyse.comparison.sweep_results import STEP, TOTAL, Composition, Crossover, Fit

CONFIDENCE = 0.95
"""Of every interval that a sweep shows."""

WIDEST = 2.0
"""A crossover whose interval spans more than this factor in tokens is no place that anyone could use."""

_FURTHEST = 10.0
"""Beyond this factor from the measured sizes nothing is looked for."""

_Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Found:
    """The crossovers of one group, and in words why others are not told."""

    told: tuple[Crossover, ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two stages whose fitted curves meet, and the interval in which they may."""

    below: Fit  # the longer one at fewer tokens
    above: Fit
    tokens: float
    low: float
    high: float

    @property
    def names(self) -> str:
        return f"{self.below.series} and {self.above.series}, {self.below.group}"


def crossovers(group: str, fits: Sequence[Fit], split: Composition | None) -> Found:
    """The crossovers of one group of fits; ``split`` is the same group's other model of a step, if any."""
    of_group = [fit for fit in fits if fit.group == group and fit.against == "tokens"]
    stages = [fit for fit in of_group if fit.series not in (TOTAL, STEP) and not fit.doubt]
    pairs = (_pair(one, other) for one, other in itertools.combinations(stages, 2))
    told: list[Crossover] = []
    withheld: list[str] = []
    for pair in pairs:
        if pair is None or _at(pair.below, pair.tokens) < max(_at(fit, pair.tokens) for fit in stages) * (
            1 - 1e-9
        ):
            continue
        judged = _told(pair, _other_model(pair, of_group, split))
        if isinstance(judged, Crossover):
            told.append(judged)
        else:
            withheld.append(f"where the longest stage changes is not told ({pair.names}): {judged}")
    return Found(tuple(sorted(told, key=lambda each: each.tokens)), tuple(withheld))


def _pair(one: Fit, other: Fit) -> _Pair | None:
    if math.isclose(one.exponent, other.exponent):
        return None
    below, above = (one, other) if other.exponent > one.exponent else (other, one)
    measured = [point.x for fit in (one, other) for point in fit.points]
    place = math.log(below.coefficient / above.coefficient) / (above.exponent - below.exponent)
    if not math.log(min(measured) / _FURTHEST) <= place <= math.log(max(measured) * _FURTHEST):
        return None
    low, high = _interval(below, above, place)
    return _Pair(below, above, math.exp(place), low, high)


def _interval(below: Fit, above: Fit, place: float) -> tuple[float, float]:
    """In tokens: around ``place`` (a logarithm), where the difference of the lines is within its error.

    Fieller's interval, walked out on a grid: it may be unbounded (0, infinity), where slopes hardly differ.
    """
    reach = math.log(10 * _FURTHEST) + 1
    steps = np.linspace(0.0, reach, 2000)[1:]
    freedom = len(below.points) + len(above.points) - 4
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))

    def walked(direction: int) -> float:
        x = place + direction * steps
        difference = (above.exponent - below.exponent) * (x - place)
        error = np.sqrt(_variance(below, x) + _variance(above, x))
        outside = np.flatnonzero(np.abs(difference) > quantile * error)
        if not outside.size:
            return direction * math.inf
        return place + direction * float(np.concatenate(([0.0], steps))[outside[0]])

    return math.exp(walked(-1)), math.exp(walked(1))


def _variance(fit: Fit, x: _Logs) -> _Logs:
    """Of the fitted line at logarithms ``x``, from its residuals (simple linear regression)."""
    at = np.log([point.x for point in fit.points])
    residuals = np.log([point.ms for point in fit.points]) - math.log(fit.coefficient) - fit.exponent * at
    spread = float(np.sum((at - at.mean()) ** 2))
    variance = float(np.sum(residuals**2)) / (len(at) - 2)
    found: _Logs = variance * (1 / len(at) + (x - at.mean()) ** 2 / spread)
    return found


def _told(pair: _Pair, other_model: str) -> Crossover | str:
    """The crossover, or why it is not told."""
    below = {point.x: point.ms for point in pair.below.points}
    pairs = [(point.x, below[point.x], point.ms) for point in pair.above.points if point.x in below]
    still = max((x for x, first, second in pairs if first > second), default=0.0)
    already = min((x for x, first, second in pairs if second > first), default=math.inf)
    fitted = f"the fits have it at {pair.tokens:,.0f} tokens"
    if still > pair.high:
        return f"{fitted}, but {pair.below.series} was still measured the longer one at {still:,.0f}"
    if already < pair.low:
        return f"{fitted}, but {pair.above.series} was already measured the longer one at {already:,.0f}"
    ordered = still < already
    low, high = (max(pair.low, still), min(pair.high, already)) if ordered else (pair.low, pair.high)
    measured = ordered and still > 0 and already < math.inf
    if low <= 0 or high > WIDEST * low:
        between = f"; it lies between the measured {still:,.0f} and {already:,.0f}" if measured else ""
        return f"the fits allow {_range(low, high)}{between}"
    if other_model:
        return other_model
    return Crossover(
        group=pair.below.group,
        before=pair.below.series,
        after=pair.above.series,
        tokens=min(max(pair.tokens, low), high),
        interval=(low, high),
        within=measured,
    )


def _range(low: float, high: float) -> str:
    if low <= 0:
        return "anything" if math.isinf(high) else f"anything up to {high:,.0f} tokens"
    return f"anything from {low:,.0f} tokens on" if math.isinf(high) else f"{low:,.0f} to {high:,.0f} tokens"


def _other_model(pair: _Pair, fits: Sequence[Fit], split: Composition | None) -> str:
    """That the split of a step has the denoising cross elsewhere; empty where it agrees or says nothing."""
    denoising = [fit for fit in (pair.below, pair.above) if "Denoising" in fit.series]
    step = next((fit for fit in fits if fit.series == STEP), None)
    if split is None or step is None or len(denoising) != 1 or pair.low <= 0 or math.isinf(pair.high):
        return ""
    (stage,) = denoising
    other = pair.above if stage is pair.below else pair.below
    step_ms = {point.x: point.ms for point in step.points}
    ratios = [point.ms / step_ms[point.x] for point in stage.points if point.x in step_ms]
    if not ratios:
        return ""
    steps = median(ratios)
    signs = {
        steps * _split_ms(split, tokens) > _at(other, tokens)
        for tokens in (pair.low / _NEAR, pair.high * _NEAR)
    }
    if len(signs) > 1:
        return ""
    longer = stage.series if signs == {True} else other.series
    return (
        f"the fits have it at {pair.tokens:,.0f} tokens, but by the split of a step {longer} is the longer "
        "one there on both sides"
    )


_NEAR = 1.05
"""Two models that meet within this factor of the interval agree."""


def _split_ms(split: Composition, tokens: float) -> float:
    return split.fixed_ms + split.linear_ms_per_token * tokens + split.quadratic_ms_per_token2 * tokens**2


def _at(fit: Fit, tokens: float) -> float:
    return fit.coefficient * math.pow(tokens, fit.exponent)
