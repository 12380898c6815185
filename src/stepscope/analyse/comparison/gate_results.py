"""What a gate gives: one check a row, named as its JSON names them."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.vocabulary import Word

GATE_SCHEMA_VERSION = 1
"""1 (2026-11): first."""


class Outcome(Word):
    """How a check ended. What was asked for and could not be measured has failed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # nothing to hold it against yet: no baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One budget or rule held against a run."""

    name: str
    unit: str  # ms | bytes | "" for a rule
    limit: float | None
    measured: float | None
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """All checks of one run."""

    path: str
    request_id: str
    device: str
    budget: str  # which table of the budget file applied
    cohort: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome is not Outcome.FAILED for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Every run that was held against the budgets."""

    schema_version: int
    passed: bool
    results: tuple[GateResult, ...]
