"""What a comparison gives: frozen results, named as the comparison's JSON names them.

Times are float milliseconds, memory bytes; ``change`` is new over base less one, so -0.1 is a tenth less.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.vocabulary import Word

COMPARE_SCHEMA_VERSION = 1
"""1 (2026-11): first."""


class Verdict(Word):
    """What may be said of one row."""

    BETTER = "better"
    WORSE = "worse"
    NO_CHANGE = "no change"  # a change worth knowing is excluded
    CANNOT_TELL = "cannot tell"  # measured on both sides, but too coarsely for any of the three
    NO_VERDICT = "no verdict"  # untrusted, or not measured on both sides


class Basis(Word):
    """What verdicts rest on."""

    SIGNIFICANCE = "significance"  # repeated runs on both sides: Welch's t-test
    THRESHOLDS = "thresholds"  # one run on a side: noise cannot be told from change


class Severity(Word):
    """What a difference of environment or workload means for the comparison."""

    UNLIKE = "unlike"  # the runs did different work, or were measured differently: needs --anyway
    SETTING = "setting"  # may be what the comparison is about, or may confound it
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The values of one row on one side, a value a run."""

    values: tuple[float, ...]
    median: float
    mean: float
    spread: float  # standard deviation over mean; 0 for one run


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing measured on both sides. A side that does not have it is None."""

    name: str
    kind: str  # total | throughput | stage | step | memory
    unit: str  # ms | bytes | 1/s
    base: Sample | None
    new: Sample | None
    difference: float | None  # of the medians
    change: float | None  # of the medians, relative to the base
    interval: tuple[float, float] | None  # of the relative change of the means, at 1 - alpha; from -1 on
    p_value: float | None  # below the end-to-end row: corrected after Holm
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something in environment or workload that is not the same on both sides."""

    name: str
    base: str | None
    new: str | None
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """One output of both sides, same position; whether the new one shows the same."""

    position: int
    base_path: str | None
    new_path: str | None
    identical: bool | None  # by the hash of the raw pixels
    psnr_db: float | None  # None: identical, or not computed (see note)
    ssim: float | None
    verdict: str  # identical | close | different | broken | not compared
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChange:
    """A kernel, or all kernels of a category, on both sides."""

    name: str
    category: str
    state: str  # appeared | disappeared | changed | same
    base_count: int
    new_count: int
    base_ms: float
    new_ms: float
    difference_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison:
    """Where the GPU time went: rows that sum to the difference, by category and by kernel."""

    base_ms: float
    new_ms: float
    difference_ms: float
    categories: tuple[KernelChange, ...]
    kernels: tuple[KernelChange, ...]
    per: str  # run | step: what the times are of


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The runs of one side."""

    label: str
    paths: tuple[str, ...]
    runs: int
    untrusted: tuple[str, ...]  # every reason, with the file it is about
    untrusted_runs: tuple[str, ...]  # those files
    facts: tuple[tuple[str, str], ...]  # environment and workload, for the record


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One new side against the base."""

    new: Side
    basis: Basis
    alpha: float
    total: Row
    throughput: Row | None
    memory: Row | None
    stages: tuple[Row, ...]
    steps: tuple[Row, ...]
    step_median: Row | None
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    quality: tuple[QualityRow, ...] = ()
    kernels: KernelComparison | None = None
    random_weights: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareReport:
    """The base and everything compared with it."""

    schema_version: int
    base: Side
    comparisons: tuple[Comparison, ...]
