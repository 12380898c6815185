"""A verdict for each row of a comparison: by test where runs were repeated, else by written thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepscope.analyse.comparison.compare_results import Basis, Row, Sample, Verdict
from stepscope.analyse.comparison.statistics import WelchTest, holm, welch

NEGLIGIBLE = 0.005
"""Half a percent: a smaller change is no change, however sure the test is of it."""

THRESHOLDS = {"total": 0.02, "stage": 0.10, "step": 0.10, "memory": 0.01}
"""One run a side: what a row has to change by. SGLang's compare_perf takes the same 2 % and 10 %."""

STAGE_SHARE = 0.01
"""One run a side: a stage's change has to be this share of the run too. SGLang asks for 120 ms instead:
there a stage under 120 ms is never flagged, and a jitter of 120 ms in a run of two minutes is."""

_LOOKS_SMALL = 0.1

TESTED_SHARE = 0.005
"""A stage below half a percent of the run on both sides is shown, but not worth a test of its own."""


def judged(rows: Sequence[Row], *, basis: Basis, alpha: float, run_ms: float) -> tuple[Row, ...]:
    """The rows with verdicts. They are one family: with a test, p-values are corrected for their number.

    ``run_ms`` is the base's total: stages are weighed against it.
    """
    if basis is Basis.THRESHOLDS:
        return tuple(_by_threshold(row, run_ms) for row in rows)
    tests = {position: _test(row, alpha) for position, row in enumerate(rows) if _tested(row, run_ms)}
    corrected = holm([test.p_value for test in tests.values()])
    p_values = dict(zip(tests, corrected, strict=True))
    return tuple(
        _by_test(row, p_values[position], tests[position], _Asked(alpha, len(tests), run_ms))
        if position in tests
        else _untested(row)
        for position, row in enumerate(rows)
    )


def withheld(row: Row, reason: str) -> Row:
    """The row without a verdict: its numbers are not to be trusted."""
    return replace(row, verdict=Verdict.NO_VERDICT, reason=reason)


def only_in(base: Sample | None, new: Sample | None) -> str:
    """Which side has what the other, or both, lack."""
    if base is None and new is None:
        return "measured on neither side"
    return f"only in the {'base' if new is None else 'new runs'}"


def _tested(row: Row, run_ms: float) -> bool:
    if row.base is None or row.new is None or min(len(row.base.values), len(row.new.values)) < 2:
        return False
    if row.verdict is Verdict.NO_VERDICT or row.change is None:
        return False
    return row.kind != "stage" or max(row.base.median, row.new.median) >= TESTED_SHARE * run_ms


def _test(row: Row, alpha: float) -> WelchTest:
    assert row.base is not None
    assert row.new is not None
    return welch(row.base, row.new, alpha=alpha)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a row of a family has to reach."""

    alpha: float
    rows: int
    run_ms: float


def _by_test(row: Row, p_value: float, test: WelchTest, asked: _Asked) -> Row:
    verdict, reason = _significance(row, p_value, asked)
    interval = test.interval and (max(test.interval[0], -1.0), max(test.interval[1], -1.0))
    if test.p_value < asked.alpha <= p_value:  # the interval, which is the row's own, leaves out zero
        said = f"p = {p_value:.2g} corrected for {asked.rows} rows, {asked.alpha:g} asked"
        reason = f"{said}; the interval is of this row alone"
    if verdict is Verdict.NO_CHANGE and _reaches_beyond(row, interval, asked.run_ms):
        verdict = Verdict.CANNOT_TELL
        reason = reason.replace("equal", "the medians are equal")
        reason = f"{reason}; {100 * THRESHOLDS[row.kind]:.0f} % is not excluded"
    return replace(row, p_value=p_value, interval=interval, verdict=verdict, reason=reason)


def _reaches_beyond(row: Row, interval: tuple[float, float] | None, run_ms: float) -> bool:
    """Whether a change that one run a side would be called changed for is still possible."""
    if interval is None or row.base is None:
        return False
    furthest = max(map(abs, interval))
    weighty = row.kind != "stage" or furthest * row.base.mean > STAGE_SHARE * run_ms
    return furthest > THRESHOLDS[row.kind] and weighty


def _significance(row: Row, p_value: float, asked: _Asked) -> tuple[Verdict, str]:
    assert row.base is not None
    assert row.new is not None
    change = row.change or 0.0
    if not p_value < asked.alpha:
        return Verdict.NO_CHANGE, _not_significant(p_value, asked.alpha) if change else "equal"
    if abs(change) < NEGLIGIBLE:
        return Verdict.NO_CHANGE, f"below {100 * NEGLIGIBLE:.1f} %, which is not worth a verdict"
    if change * (row.new.mean - row.base.mean) <= 0:
        return Verdict.NO_CHANGE, "median and mean disagree about the direction: outliers"
    return _direction(change), f"p = {p_value:.2g}" if p_value > 0 else "does not vary"


def _not_significant(p_value: float, alpha: float) -> str:
    """In words; with the level where readers would take the p-value for a small one."""
    if p_value < _LOOKS_SMALL:
        return f"within noise: p = {p_value:.2g}, {alpha:g} asked"
    return f"within noise (p = {p_value:.2g})"


def _by_threshold(row: Row, run_ms: float) -> Row:
    if row.verdict is Verdict.NO_VERDICT or row.change is None or row.difference is None:
        return _untested(row)
    limit = THRESHOLDS[row.kind]
    if abs(row.change) <= limit:
        return replace(row, verdict=Verdict.NO_CHANGE, reason=f"within {100 * limit:.0f} %")
    if row.kind == "stage" and abs(row.difference) <= STAGE_SHARE * run_ms:
        return replace(
            row, verdict=Verdict.NO_CHANGE, reason=f"less than {100 * STAGE_SHARE:.0f} % of the run"
        )
    return replace(row, verdict=_direction(row.change), reason=f"more than {100 * limit:.0f} %")


def _untested(row: Row) -> Row:
    if row.verdict is Verdict.NO_VERDICT:
        return row
    if row.base is None or row.new is None:
        return replace(row, verdict=Verdict.NO_VERDICT, reason=only_in(row.base, row.new))
    if row.change is None:
        return _from_zero(row)
    if row.kind == "stage":
        return replace(row, verdict=Verdict.NO_CHANGE, reason=f"under {100 * TESTED_SHARE:.1f} % of the run")
    return replace(row, verdict=Verdict.NO_VERDICT, reason="measured in too few runs")


def _from_zero(row: Row) -> Row:
    """A base of zero: what is there now has no share of it, but nothing is still nothing."""
    if row.difference == 0:
        return replace(row, verdict=Verdict.NO_CHANGE, reason="equal")
    return replace(row, verdict=Verdict.NO_VERDICT, reason="the base is zero: there is no share of it")


def _direction(change: float) -> Verdict:
    """Less is better for time and memory alike."""
    return Verdict.BETTER if change < 0 else Verdict.WORSE
