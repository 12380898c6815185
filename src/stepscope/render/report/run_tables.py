"""The tables of one run, from its perf dump or run record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepscope.analyse.results import OutsideTime, RunSummary, StepTime
from stepscope.render import units
from stepscope.render.report.stage_sums import summed_times
from stepscope.render.tables import Column, Kind, Table, build

_STAGES = (
    Column(key="stage_index", title="#", kind=Kind.INDEX),
    Column(key="name", title="stage"),
    Column(key="duration_ms", title="ms", kind=Kind.MS),
    Column(key="share", title="share", kind=Kind.SHARE),
    Column(key="host_ms", title="host ms", kind=Kind.MS),
    Column(key="device_ms", title="device ms", kind=Kind.MS),
    Column(key="inferred_ms", title="inferred ms", kind=Kind.MS),
)
TIMES = Column(key="times", title="times", kind=Kind.COUNT)
"""How many occurrences a row adds up; empty, and so not shown, where no row adds up any."""
_STEPS = (
    Column(key="index", title="step", kind=Kind.INDEX),
    Column(key="stage_index", title="stage", kind=Kind.INDEX),
    Column(key="duration_ms", title="ms", kind=Kind.MS),
    Column(key="host_ms", title="host ms", kind=Kind.MS),
    Column(key="forwards", title="forwards", kind=Kind.COUNT),
    Column(key="work", title="work"),
    Column(key="traced", title="traced", kind=Kind.MARK),
    Column(key="profiler_warmup", title="profiler warm-up", kind=Kind.MARK),
    Column(key="outlier", title="what differs"),
)
_OUTSIDE = (
    Column(key="name", title="outside the call"),
    Column(key="duration_ms", title="ms", kind=Kind.MS),
)
_FACTS = (
    Column(key="group", title="group"),
    Column(key="name", title="name"),
    Column(key="value", title="value", kind=Kind.CODE),
)


SHOWN_SHARE = 0.0005
"""Below this share a row would read 0.0 %."""


def not_in_stages(run: RunSummary) -> tuple[OutsideTime, ...]:
    """What the total has beside the stages, so that the shares sum to 100 %."""
    rows = (
        OutsideTime(name="(weights moved)", duration_ms=run.moved_ms, share=run.moved_share),
        OutsideTime(name="(in no stage)", duration_ms=run.unaccounted_ms or 0.0, share=run.unaccounted_share),
    )
    return tuple(row for row in rows if abs(row.share) >= SHOWN_SHARE)


def run_stages(run: RunSummary) -> Table:
    """Every stage occurrence of the run, in order."""
    rows = (
        (
            stage.stage_index,
            stage.name,
            stage.duration_ms,
            stage.share,
            stage.host_ms,
            stage.device_ms,
            stage.inferred_ms or None,
        )
        for stage in run.stages
    )
    return build("run_stages", "Stages of the run", _STAGES, rows)


def run_stages_by_name(run: RunSummary) -> Table:
    """The stages as people read them: a name that occurs often has one row, with how many times."""
    shown = summed_times(run.stages)
    table = run_stages(replace(run, stages=tuple(row.stage for row in shown)))
    return with_times(table, [row.times for row in shown])


def with_times(table: Table, times: Sequence[int]) -> Table:
    """``table`` with how many occurrences each row adds up, after the name."""
    at = [column.key for column in table.columns].index("name") + 1
    told = times if any(count > 1 for count in times) else [None] * len(times)
    return replace(
        table,
        columns=(*table.columns[:at], TIMES, *table.columns[at:]),
        rows=tuple((*row[:at], count, *row[at:]) for row, count in zip(table.rows, told, strict=True)),
    )


def run_steps(run: RunSummary) -> Table:
    """Every denoising step of the run."""
    rows = (
        (
            step.index,
            step.stage_index,
            step.duration_ms,
            step.host_ms,
            step.forwards or None,
            step.work,
            step.traced,
            step.profiler_warmup,
            _what_differs(run, step),
        )
        for step in run.steps
    )
    return build("run_steps", "Denoising steps of the run", _STEPS, rows)


def _what_differs(run: RunSummary, step: StepTime) -> str | None:
    """How far an odd step is from the median, and why."""
    if step.outlier is None or run.step_statistics is None or run.step_statistics.median_ms <= 0:
        return step.outlier
    return f"{units.ratio(step.duration_ms / run.step_statistics.median_ms)} the median: {step.outlier}"


def run_outside(run: RunSummary) -> Table:
    """What surrounds the pipeline call: never part of its total."""
    rows = ((part.name, part.duration_ms) for part in run.outside)
    return build("run_outside", "Outside the pipeline call, not in the total", _OUTSIDE, rows)


def run_facts(run: RunSummary) -> Table:
    """What was engaged, asked for and where."""
    groups = (("engaged", run.engaged), ("workload", run.workload), ("environment", run.environment))
    rows = ((group, name, value) for group, pairs in groups for name, value in pairs)
    return build("run_facts", "Engaged, workload and environment", _FACTS, rows)
