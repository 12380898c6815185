"""What a sweep gives: its rows, and how time grows with tokens and steps."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.sweep import SweepRow

SCALING_SCHEMA_VERSION = 1
"""1 (2026-11): first."""

TOTAL, STEP = "end to end", "step"
"""Series that are no stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One measured point of a curve."""

    x: float
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A power law ms = coefficient * x ** exponent, by least squares of the logarithms."""

    series: str  # a stage, "step" or "end to end"
    against: str  # tokens | steps
    group: str  # what was held fixed, in words
    exponent: float
    exponent_error: float  # standard error
    exponent_interval: tuple[float, float]  # 95 % confidence, Student's t with two degrees of freedom fewer
    coefficient: float
    worst_residual: float  # the largest |measured / fitted - 1|
    points: tuple[CurvePoint, ...]
    doubt: str = ""  # why the exponent should not be believed


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A step as fixed + linear + quadratic time in tokens (attention is the quadratic part)."""

    group: str
    fixed_ms: float
    linear_ms_per_token: float
    quadratic_ms_per_token2: float
    quadratic_share: float  # of the step at the most tokens measured
    worst_residual: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Where a stage takes over as the longest."""

    group: str
    before: str  # the longest stage below
    after: str  # the longest stage above
    tokens: float
    interval: tuple[float, float]  # of the tokens, from the fits' residuals (95 %) and the measured points
    within: bool  # measured points on both sides of it show it; else it is an extrapolation


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUse:
    """What the first call of a shape cost beyond a usual one."""

    shape: str
    variant: str
    extra_ms: float
    first_in_process: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """A sweep's rows and what they say together."""

    schema_version: int
    rows: tuple[SweepRow, ...]
    missing: int  # points of the grid without a row
    fits: tuple[Fit, ...]
    compositions: tuple[Composition, ...]
    crossovers: tuple[Crossover, ...]
    crossovers_withheld: tuple[str, ...]  # where curves meet, but nothing can be said: why not
    first_uses: tuple[FirstUse, ...]
    warnings: tuple[str, ...]
