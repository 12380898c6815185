"""Budgets: what a run may cost, by GPU model, and rules that it has to keep."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Upper limits; one that is None is not checked."""

    total_ms: float | None = None
    step_ms: float | None = None  # the median step
    slowest_step_ms: float | None = None
    peak_memory_gib: float | None = None
    stages: dict[str, float] = field(default_factory=dict)  # ms by stage name, occurrences summed


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """What has to hold whatever the numbers."""

    trusted: bool = True  # the run's numbers agree with each other
    complete: bool = True
    no_sync_in_loop: bool = False  # needs a trace
    forbid_findings: tuple[str, ...] = ()  # ids of findings that a trace may not have; needs a trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The rolling baseline: the median of the last good runs of the same cohort."""

    last: int = 10  # runs that count
    at_least: int = 3  # with fewer there is no baseline yet
    allow_percent: float = 5.0  # slower than the baseline, end to end


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """A budget file."""

    default: Budget | None = None  # for a GPU that has none of its own
    gpu: dict[str, Budget] = field(default_factory=dict)  # by a part of the device's name
    rules: GateRules = field(default_factory=GateRules)
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One run in a history file."""

    cohort: str  # runs of one cohort did the same work on the same kind of GPU
    request_id: str
    total_ms: float
    good: bool  # it kept its budgets and rules
    timestamp: str = ""
    commit: str = ""
    facts: dict[str, str] = field(default_factory=dict)  # what the cohort stands for, in the clear
    schema_version: int = 1
