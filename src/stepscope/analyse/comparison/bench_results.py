"""What a bench gives beside its comparison: every run in its order, and whether the machine held still."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analyse.comparison.compare_results import CompareReport

BENCH_SCHEMA_VERSION = 1
"""1 (2026-11): first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """The GPU during one run. What was not read is None."""

    samples: int
    sm_mhz: float | None = None  # median
    temperature_c: float | None = None  # highest
    power_w: float | None = None  # median
    throttled: tuple[tuple[str, float], ...] = ()  # reason and share of the samples, 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """One run, at its place in the order in which all were made."""

    order: int
    variant: str
    total_ms: float
    path: str  # its perf dump
    gpu: GpuState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Whether runs became slower or faster as the bench went on, whatever their variant."""

    change: float  # from the first run to the last, relative
    p_value: float  # of the slope
    found: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """One verdict for each variant against the first, and what it rests on."""

    schema_version: int
    comparison: CompareReport
    runs: tuple[BenchRun, ...]
    drift: Drift | None
    notes: tuple[str, ...]
