"""Two cohorts in, one comparison out: end to end, throughput, memory, stages, steps, each with a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from stepscope.analyse.comparison.cohort import (
    Cohort,
    Observation,
    differences,
    side_of,
    unrecorded,
    whole_number,
)
from stepscope.analyse.comparison.compare_results import (
    Basis,
    Comparison,
    Row,
    Sample,
    Severity,
    Side,
    Verdict,
)
from stepscope.analyse.comparison.judge import THRESHOLDS, judged, only_in, withheld
from stepscope.analyse.comparison.statistics import ALPHA, runs_needed, sample_of

GPU_SPAN = "GPU span"


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a row shows, and how it is read off a run."""

    name: str
    kind: str
    unit: str
    reading: Callable[[Observation], float | None]


def compare(base: Cohort, new: Cohort, *, alpha: float = ALPHA) -> Comparison:
    """Everything that changed from ``base`` to ``new``.

    With two runs or more on both sides the end-to-end verdict is Welch's test at ``alpha``. Below it are two
    families of rows, stages with memory and the median step, and single steps: each is corrected for its
    number (Holm) at half of ``alpha``, so that any false 'changed' below the first row is as rare as in it.
    """
    repeated = min(len(base.runs), len(new.runs)) > 1
    basis = Basis.SIGNIFICANCE if repeated else Basis.THRESHOLDS
    row = partial(_row, base, new)
    total = row(_Measure(_total_name(base, new), "total", "ms", lambda run: run.total_ms))
    names = _in_order(run.stages for side in (base, new) for run in side.runs)
    parts = [row(_Measure(name, "stage", "ms", partial(_stage_ms, name))) for name in names]
    stages_ms = sum(part.base.median for part in parts if part.base)
    judge = partial(judged, basis=basis, run_ms=total.base.median if total.base else stages_ms)
    memory = row(_Measure("peak memory", "memory", "bytes", _peak_memory))
    step_median = row(_Measure("median step", "step", "ms", _median_step))
    (total,) = judge([total], alpha=alpha)
    *stages, memory, step_median = judge([*parts, memory, step_median], alpha=alpha / 2)
    return Comparison(
        new=side_of(new),
        basis=basis,
        alpha=alpha,
        total=total,
        throughput=_throughput(total, base, new),
        memory=_present(memory),
        stages=tuple(stages),
        steps=judge(_step_rows(base, new), alpha=alpha / 2),
        step_median=_present(step_median),
        differences=differences(base, new),
        warnings=(*_warnings(base, new, basis), *_noise_warnings(total, alpha)),
        random_weights=any(run.facts.get("load_format") == "dummy" for run in (*base.runs, *new.runs)),
    )


def withhold_verdicts(comparison: Comparison, base: Side) -> Comparison:
    """The comparison with no verdict on times where a run's numbers are untrusted; else as it is."""
    untrusted = [*base.untrusted, *comparison.new.untrusted]
    if not untrusted:
        return comparison
    hold = partial(withheld, reason="untrusted numbers")
    of_noise = _noise_warnings(comparison.total, comparison.alpha)  # more such runs would tell nothing
    return replace(
        comparison,
        warnings=tuple(text for text in comparison.warnings if text not in of_noise),
        total=withheld(comparison.total, f"untrusted: {untrusted[0]}"),
        throughput=hold(comparison.throughput) if comparison.throughput else None,
        stages=tuple(hold(row) for row in comparison.stages),
        steps=tuple(hold(row) for row in comparison.steps),
        step_median=hold(comparison.step_median) if comparison.step_median else None,
    )


def unlike(comparison: Comparison) -> tuple[str, ...]:
    """What makes the two sides runs of different things, in words."""
    return tuple(
        f"{difference.name} {difference.base} against {difference.new}"
        for difference in comparison.differences
        if difference.severity is Severity.UNLIKE
    )


def fails_above(comparison: Comparison, limit: float, *, base: Side | None = None) -> str | None:
    """Why CI should fail: slower end to end by more than ``limit`` (0.05 is 5 %), or not to be told.

    One run a side is held against ``limit`` alone; repeated runs must differ significantly as well, so where
    noise hides what there is, nothing fails: see ``undecided``. ``base`` is asked for untrusted runs to name.
    """
    total = comparison.total
    if total.change is None or total.verdict is Verdict.NO_VERDICT:
        said = f"{comparison.new.label}: no verdict counts as failed ({total.reason})"
        runs = [*(base.untrusted_runs if base else ()), *comparison.new.untrusted_runs]
        return f"{said}: measure {', '.join(runs)} again, or leave it out" if runs else said
    certain = comparison.basis is Basis.THRESHOLDS or total.verdict is Verdict.WORSE
    if total.change > limit and certain:
        grown = f"{100 * total.change:+.1f} % {total.name}"
        return f"{comparison.new.label}: {grown}, more than the {100 * limit:.1f} % allowed"
    return None


def undecided(comparison: Comparison, limit: float) -> str | None:
    """That ``limit`` was not broken only because the runs cannot tell; None where they can."""
    total = comparison.total
    if total.verdict is not Verdict.CANNOT_TELL or total.interval is None:
        return None
    low, high = (f"{100 * bound:+.1f} %" for bound in total.interval)
    label, allowed = comparison.new.label, f"{100 * limit:.1f} %"
    if total.interval[1] <= limit:
        return f"{label}: cannot tell what changed, but not more than {allowed} slower ({low} to {high})"
    return (
        f"{label}: cannot tell whether it is more than {allowed} slower ({low} to {high}): this is no failure"
    )


def _row(base: Cohort, new: Cohort, measure: _Measure) -> Row:
    left, right = _sample(base, measure.reading), _sample(new, measure.reading)
    known = left is not None and right is not None
    difference = right.median - left.median if left and right else None
    return Row(
        name=measure.name,
        kind=measure.kind,
        unit=measure.unit,
        base=left,
        new=right,
        difference=difference,
        change=right.median / left.median - 1 if left and right and left.median > 0 else None,
        interval=None,
        p_value=None,
        verdict=Verdict.NO_CHANGE if known else Verdict.NO_VERDICT,
        reason="" if known else _missing(measure, left, right),
    )


def _missing(measure: _Measure, left: Sample | None, right: Sample | None) -> str:
    """Why a row cannot be compared."""
    if measure.name == GPU_SPAN:
        of = "neither trace has" if left is right else "a trace has no"
        return f"{of} GPU events, so there is no total: see stages and steps"
    return only_in(left, right)


def _sample(cohort: Cohort, reading: Callable[[Observation], float | None]) -> Sample | None:
    values = (reading(run) for run in cohort.runs)
    return sample_of([value for value in values if value is not None])


def _total_name(base: Cohort, new: Cohort) -> str:
    """What stands for the total: a trace knows only from its first GPU event to its last."""
    sources = {run.facts.get("measured from") for run in (*base.runs, *new.runs)}
    return GPU_SPAN if sources == {"trace"} else "end to end"


def _stage_ms(name: str, run: Observation) -> float | None:
    return run.stages.get(name)


def _step_ms(index: int, run: Observation) -> float | None:
    return run.steps.get(index)


def _peak_memory(run: Observation) -> float | None:
    return None if run.peak_memory_bytes is None else float(run.peak_memory_bytes)


def _median_step(run: Observation) -> float | None:
    typical = [ms for index, ms in run.steps.items() if index not in run.untypical_steps]
    steps = typical if len(typical) >= 3 else list(run.steps.values())
    return median(steps) if steps else None


def _step_rows(base: Cohort, new: Cohort) -> list[Row]:
    """Steps aligned by index; one that a profiler recorded on one side only gets no verdict."""
    indices = sorted({index for side in (base, new) for run in side.runs for index in run.steps})
    measures = [_Measure(f"step {index}", "step", "ms", partial(_step_ms, index)) for index in indices]
    rows = [_row(base, new, measure) for measure in measures]
    return [
        withheld(row, "a profiler recorded it on one side only") if _traced_once(base, new, index) else row
        for index, row in zip(indices, rows, strict=True)
    ]


def _traced_once(base: Cohort, new: Cohort, index: int) -> bool:
    return len({index in run.untypical_steps for side in (base, new) for run in side.runs}) > 1


def _throughput(total: Row, base: Cohort, new: Cohort) -> Row | None:
    """Outputs a second, from the same totals: the verdict is the end-to-end one."""
    left, right = _sample(base, _outputs_per_s), _sample(new, _outputs_per_s)
    if left is None or right is None:
        return None
    return replace(
        total,
        name="throughput",
        kind="throughput",
        unit="1/s",
        base=left,
        new=right,
        difference=right.median - left.median,
        change=right.median / left.median - 1,
        interval=None,
        p_value=None,
    )


def _outputs_per_s(run: Observation) -> float | None:
    outputs = whole_number(run.facts.get("outputs_per_prompt", "1"))
    if run.facts.get("measured from") == "trace" or run.total_ms is None or not outputs:
        return None
    return 1000.0 * outputs / run.total_ms


def _present(row: Row) -> Row | None:
    return None if row.base is None and row.new is None else row


def _in_order(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in groups for name in group))


def _warnings(base: Cohort, new: Cohort, basis: Basis) -> tuple[str, ...]:
    said = [text for text in (unrecorded(base), unrecorded(new)) if text]
    if basis is Basis.THRESHOLDS:
        said.append(
            "one run on a side cannot tell noise from change: verdicts use written thresholds "
            "(repeat the runs, or use stepscope bench)"
        )
    return tuple(said)


def _noise_warnings(total: Row, alpha: float) -> list[str]:
    """What would tell where these runs cannot."""
    if total.verdict is not Verdict.CANNOT_TELL or total.base is None or total.new is None:
        return []
    change = abs(total.new.mean / total.base.mean - 1)
    half_width = max(change, THRESHOLDS["total"] - change)  # enough to reject, or to exclude
    needed = runs_needed(total.base, total.new, half_width=half_width, alpha=alpha)
    return [f"what would tell: {needed} with the noise of these, or a quieter machine"]
