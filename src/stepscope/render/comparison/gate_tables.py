"""What every view of a gate shows: one row a check."""

from __future__ import annotations

from stepscope.analyse.comparison.gate_results import Check, GateReport, GateResult, Outcome
from stepscope.render import units
from stepscope.render.tables import Column, Kind, Table, build

WORDS = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.SKIPPED: "skipped"}

_COLUMNS = (
    Column(key="name", title="check"),
    Column(key="outcome", title="outcome"),
    Column(key="measured", title="measured", kind=Kind.AMOUNT),
    Column(key="limit", title="budget", kind=Kind.AMOUNT),
    Column(key="detail", title="detail"),
)


def checks_table(result: GateResult) -> Table:
    """Every check of one run, the failed ones first."""
    order = (Outcome.FAILED, Outcome.SKIPPED, Outcome.PASSED)
    checks = sorted(result.checks, key=lambda check: order.index(check.outcome))
    rows = [
        (
            check.name,
            WORDS[check.outcome],
            amount(check, check.measured),
            amount(check, check.limit),
            check.detail,
        )
        for check in checks
    ]
    return build("checks", title(result), _COLUMNS, rows)


def title(result: GateResult) -> str:
    """Which run was held against which budget."""
    device = result.device or "device not recorded"
    return f"{result.path or result.request_id} on {device}, budget {result.budget}"


def headline(report: GateReport) -> str:
    """The answer in one sentence."""
    checks = [check for result in report.results for check in result.checks]
    failed = [check for check in checks if check.outcome is Outcome.FAILED]
    done = [check for check in checks if check.outcome is not Outcome.SKIPPED]
    left = f", {len(checks) - len(done)} skipped" if len(done) < len(checks) else ""
    if not failed:
        return f"GATE PASSED: {units.counted(len(done), 'check')}{left}"
    names = ", ".join(dict.fromkeys(check.name for check in failed))
    return f"GATE FAILED: {len(failed)} of {units.counted(len(done), 'check')}{left} ({names})"


def message(check: Check) -> str:
    """A check in a sentence, for annotations and JUnit."""
    numbers = ""
    if check.limit is not None:
        numbers = f"{amount(check, check.measured)} against a budget of {amount(check, check.limit)}"
    return "; ".join(part for part in (numbers, check.detail) if part) or check.name


def amount(check: Check, value: float | None) -> str:
    """A measured value or limit with its unit; nothing for a rule."""
    if not check.unit:
        return ""
    return units.size(value) if check.unit == "bytes" else units.duration(value)
