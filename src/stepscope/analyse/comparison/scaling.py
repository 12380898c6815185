"""How time grows: exponents against tokens and steps, what is quadratic, where a stage takes over."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from scipy import optimize, stats

from stepscope.analyse.comparison.crossovers import CONFIDENCE, crossovers
from stepscope.analyse.comparison.sweep_results import (
    SCALING_SCHEMA_VERSION,
    STEP,
    TOTAL,
    Composition,
    CurvePoint,
    FirstUse,
    Fit,
    SweepReport,
)
from stepscope.model.sweep import SweepRow

FEWEST_POINTS = 3
"""Different sizes without which nothing is fitted."""

STEEPEST = 20.0
"""Beyond this exponent nothing grows."""

NOISY_RESIDUAL = 0.25
"""A fit that misses a point by more than this is no description of the points."""

_FITTED_SHARE = 0.02
"""A stage that is never 2 % of its run is not fitted: it decides nothing, and its time is mostly Python's."""

_Groups = Mapping[str, Sequence[SweepRow]]


def tokens_of(row: SweepRow) -> float | None:
    """Latent tokens: 16 x 16 pixels, and after the first frame four frames together.

    So patchified are FLUX, Qwen-Image and Wan (VAE 8 x 8 and 4 frames, patch 2 x 2). For another pipeline it
    is off by a factor, which changes no exponent.
    """
    if row.width is None or row.height is None:
        return None
    latent_frames = 1 + ((row.frames or 1) - 1) / 4
    return row.width * row.height / 256 * latent_frames


def sweep_report(rows: Sequence[SweepRow], *, missing: int = 0) -> SweepReport:
    """Fits, compositions, crossovers and first uses of the rows that were measured and are trusted."""
    usable = [row for row in rows if row.status == "ok" and not row.untrusted]
    by_size = _grouped(usable, lambda row: _words(row.point.variant, _steps(row)))
    by_steps = _grouped(usable, lambda row: _words(row.point.variant, _shape(row)))
    against_tokens = [fit for group, found in by_size.items() for fit in _fits(group, found, "tokens")]
    against_steps = [fit for group, found in by_steps.items() for fit in _fits(group, found, "steps")]
    compositions = {group: composition(group, found) for group, found in by_size.items()}
    crossed = [crossovers(group, against_tokens, compositions[group]) for group in by_size]
    return SweepReport(
        schema_version=SCALING_SCHEMA_VERSION,
        rows=tuple(rows),
        missing=missing,
        fits=(*against_tokens, *against_steps),
        compositions=tuple(each for each in compositions.values() if each is not None),
        crossovers=tuple(each for found in crossed for each in found.told),
        crossovers_withheld=tuple(text for found in crossed for text in found.withheld),
        first_uses=_first_uses(usable),
        warnings=tuple(_warnings(rows)),
    )


def power_law(points: Sequence[CurvePoint], *, series: str, against: str, group: str) -> Fit | None:
    """The power law through the points; None with fewer than three different x, a time of zero, or no law.

    Through two points there is always one: its exponent would be noise with two decimals. So is one beyond
    ``STEEPEST``: sizes were so close together that their noise is the slope.
    """
    if len({point.x for point in points}) < FEWEST_POINTS or min(point.ms for point in points) <= 0:
        return None
    x = np.log([point.x for point in points])
    y = np.log([point.ms for point in points])
    fit = stats.linregress(x, y)
    if not abs(fit.slope) <= STEEPEST:
        return None
    worst = float(np.max(np.abs(np.exp(y - (fit.intercept + fit.slope * x)) - 1)))
    slope, error = float(fit.slope), float(fit.stderr)
    reach = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, len(points) - 2))
    interval = (slope - reach, slope + reach)
    return Fit(
        series=series,
        against=against,
        group=group,
        exponent=slope,
        exponent_error=error,
        exponent_interval=interval,
        coefficient=math.exp(float(fit.intercept)),
        worst_residual=worst,
        doubt=_doubt(slope, interval, worst),
        points=tuple(points),
    )


def _doubt(exponent: float, interval: tuple[float, float], worst_residual: float) -> str:
    """Why an exponent should not be believed; empty where nothing speaks against it."""
    if worst_residual > NOISY_RESIDUAL:
        return f"misses a point by {100 * worst_residual:.0f} %"
    if interval[0] <= 0 <= interval[1]:
        return "not distinguishable from no growth"
    return "falls as size grows: noise, or another cause" if exponent < 0 else ""


def composition(group: str, rows: Sequence[SweepRow]) -> Composition | None:
    """The median step as fixed + linear + quadratic in tokens, by non-negative least squares.

    Residuals are relative, so that small sizes count as much as large ones. None below four sizes: three
    coefficients fit three points whatever they are.
    """
    points = _curve(rows, "tokens", lambda row: row.step_ms)
    if len({point.x for point in points}) < 4 or min(point.ms for point in points) <= 0:
        return None
    x = np.array([point.x for point in points])
    y = np.array([point.ms for point in points])
    largest = float(x.max())
    scaled = x / largest
    terms = np.stack([np.ones_like(scaled), scaled, scaled**2], axis=1)
    parts, _ = optimize.nnls(terms / y[:, None], np.ones_like(y))
    fixed, linear, quadratic = (float(part) for part in parts)
    return Composition(
        group=group,
        fixed_ms=fixed,
        linear_ms_per_token=linear / largest,
        quadratic_ms_per_token2=quadratic / largest**2,
        quadratic_share=quadratic / (fixed + linear + quadratic),
        worst_residual=float(np.max(np.abs(terms @ parts / y - 1))),
    )


def _fits(group: str, rows: Sequence[SweepRow], against: str) -> list[Fit]:
    series: dict[str, Callable[[SweepRow], float | None]] = {TOTAL: lambda row: row.total_ms}
    if against == "tokens":
        series[STEP] = lambda row: row.step_ms
    for name in _stages_worth_fitting(rows, against):
        series[name] = lambda row, name=name: row.stages_ms.get(name)  # type: ignore[misc]
    fits = (
        power_law(_curve(rows, against, value), series=name, against=against, group=group)
        for name, value in series.items()
    )
    return [fit for fit in fits if fit is not None]


def _stages_worth_fitting(rows: Sequence[SweepRow], against: str) -> list[str]:
    """Stages that matter; against steps only those that hold them."""
    return [
        name
        for name in dict.fromkeys(name for row in rows for name in row.stages_ms)
        if (against == "tokens" or "Denoising" in name)
        and any(row.total_ms and row.stages_ms.get(name, 0.0) >= _FITTED_SHARE * row.total_ms for row in rows)
    ]


def _curve(
    rows: Sequence[SweepRow], against: str, value: Callable[[SweepRow], float | None]
) -> list[CurvePoint]:
    """The median value at each x: several prompts of one size are one point."""
    values: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        x = tokens_of(row) if against == "tokens" else row.steps
        measured = value(row)
        if x and measured is not None:
            values[float(x)].append(measured)
    return [CurvePoint(x=x, ms=median(found)) for x, found in sorted(values.items())]


def _grouped(rows: Iterable[SweepRow], key: Callable[[SweepRow], str]) -> _Groups:
    groups: dict[str, list[SweepRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _first_uses(rows: Sequence[SweepRow]) -> tuple[FirstUse, ...]:
    return tuple(
        FirstUse(
            shape=_shape(row),
            variant=row.point.variant,
            extra_ms=row.first_use_ms,
            first_in_process=row.first_in_process,
        )
        for row in rows
        if row.first_use_ms is not None
    )


def _warnings(rows: Sequence[SweepRow]) -> Iterable[str]:
    for row in rows:
        if row.untrusted:
            yield f"{row.point.label} is untrusted and in no fit: {row.untrusted[0]}"
    usable = [row for row in rows if row.status == "ok" and not row.untrusted]
    measured: dict[str, set[Any]] = {
        "sizes": {tokens_of(row) for row in usable if tokens_of(row) is not None},
        "step counts": {row.steps for row in usable if row.steps is not None},
    }
    for what, values in measured.items():
        if 1 < len(values) < FEWEST_POINTS:
            yield f"no growth is fitted over {what}: {len(values)} were measured, {FEWEST_POINTS} are needed"
    if any(row.random_weights for row in rows):
        yield "random weights: caches and data-dependent kernels are not those of the real model"
    if len({row.device for row in rows if row.status == "ok"}) > 1:
        yield "the points ran on different devices: " + ", ".join(sorted({row.device for row in rows}))


def _steps(row: SweepRow) -> str:
    return "1 step" if row.steps == 1 else f"{row.steps} steps"


def _shape(row: SweepRow) -> str:
    frames = f"x{row.frames}" if row.frames and row.frames > 1 else ""
    return f"{row.width}x{row.height}{frames}"


def _words(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
