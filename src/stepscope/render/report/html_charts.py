"""Charts of the HTML page as plain numbers: steps, and everything of a trace over time."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analyse.results import RankReport, StepRow, StepStatistics, StepTime
from stepscope.render import units
from stepscope.render.names import sentence
from stepscope.render.report.chart_parts import (
    MOST_READINGS,
    Chart,
    Lane,
    Mark,
    Reading,
    Scale,
    scale_of,
    ticks_of,
)
from stepscope.render.report.stage_charts import rank_stage_lanes, thinned

_AREA_HEIGHT = 100.0  # of an area's own coordinate system, which is stretched to its lane
_MOST_BARS = 1000


def step_bars(
    steps: Sequence[StepTime | StepRow], statistics: StepStatistics | None, prefix: str
) -> Chart | None:
    """One bar a step from zero up, the median as a line, what differs hatched."""
    durations = [step.duration_ms for step in steps]
    scale = scale_of(0.0, max(durations, default=0.0)) if units.drawable(*durations) else None
    if len(steps) < 2 or scale is None:
        return None
    shown = steps[:_MOST_BARS]
    each = 100 / len(shown)
    marks = tuple(
        Mark(
            left=round(at * each + each * 0.1, 3),
            width=round(each * 0.8, 3),
            height=scale.at(step.duration_ms),
            css=_step_css(step),
        )
        for at, step in enumerate(shown)
    )
    readings = tuple(
        Reading(at=round((at + 0.5) * each, 3), text=_step_reading(step)) for at, step in enumerate(shown)
    )
    median = statistics.median_ms if statistics else None
    note = f"0 to {units.duration(scale.high)}"
    note += f", line: median {units.duration(median)}" if median else ""
    level = scale.at(median) if median else None
    return Chart(
        id=f"{prefix}-bars",
        title="Denoising steps",
        summary=_steps_summary(steps, statistics),
        lanes=(Lane(label="duration", note=note, marks=marks, level=level, tall=True),),
        ticks=_step_ticks(shown, each),
        readings=readings,
        legend=_step_legend(shown),
    )


def _step_css(step: StepTime | StepRow) -> str:
    if step.outlier:
        return "bar outlier"
    if isinstance(step, StepTime) and step.work != "computed":
        return "bar skipped"
    return "bar traced" if isinstance(step, StepTime) and step.traced else "bar"


def _step_legend(steps: Sequence[StepTime | StepRow]) -> tuple[tuple[str, str], ...]:
    seen = {_step_css(step) for step in steps}
    meanings = (
        ("bar outlier", "differs, hatched"),
        ("bar skipped", "not fully computed, outlined"),
        ("bar traced", "under a profiler, paler"),
    )
    found = tuple((css, meaning) for css, meaning in meanings if css in seen)
    return (("bar", "step"), *found) if found else ()


def _step_reading(step: StepTime | StepRow) -> str:
    parts = [f"step {step.index}: {units.duration(step.duration_ms)}"]
    if isinstance(step, StepTime):
        parts += [step.work] if step.work != "computed" else []
        parts += ["traced"] if step.traced else []
        parts += ["profiler warm-up"] if step.profiler_warmup else []
    else:
        parts.append(f"GPU busy {units.duration(step.gpu_busy_ms)}")
        parts.append(units.counted(step.kernel_count, "kernel"))
    if step.outlier:
        parts.append(step.outlier)
    return sentence(", ".join(parts), 300)


def _steps_summary(steps: Sequence[StepTime | StepRow], statistics: StepStatistics | None) -> str:
    if statistics is None:
        return f"{units.counted(len(steps), 'step')}. The step table has the numbers."
    return (
        f"{units.counted(len(steps), 'step')}, {'uniform' if statistics.uniform else 'not uniform'}: median "
        f"{units.duration(statistics.median_ms)}, slowest step {statistics.slowest} with "
        f"{units.duration(statistics.maximum_ms)}. The step table has the numbers."
    )


def _step_ticks(steps: Sequence[StepTime | StepRow], each: float) -> tuple[Reading, ...]:
    stride = max(1, -(-len(steps) // 10))
    return tuple(
        Reading(at=round((at + 0.5) * each, 3), text=str(steps[at].index))
        for at in range(0, len(steps), stride)
    )


def rank_timeline(rank: RankReport, prefix: str) -> Chart | None:
    """Stages, steps, GPU busy and memory over one time axis."""
    scale = _extent(rank)
    if scale is None:
        return None
    lanes = [
        *rank_stage_lanes(rank, scale),
        *_step_lane(rank, scale),
        *_busy_lane(rank, scale),
        *_memory_lane(rank, scale),
    ]
    return Chart(
        id=f"{prefix}-timeline",
        title="Over time",
        summary=_timeline_summary(rank),
        lanes=tuple(lanes),
        ticks=ticks_of(scale),
        readings=_timeline_readings(rank, scale),
    )


def _extent(rank: RankReport) -> Scale | None:
    ends = [stage.start_ms + stage.duration_ms for stage in rank.stages]
    ends += [step.start_ms + step.duration_ms for step in rank.steps]
    ends += [point.at_ms for point in rank.busy_over_time] + [point.at_ms for point in rank.memory]
    starts = [stage.start_ms for stage in rank.stages] + [point.at_ms for point in rank.busy_over_time]
    return scale_of(min([0.0, *starts]), max(ends)) if ends and units.drawable(*starts, *ends) else None


def _step_lane(rank: RankReport, scale: Scale) -> list[Lane]:
    if not any(step.start_ms for step in rank.steps):
        return []
    marks = tuple(
        Mark(
            left=scale.at(step.start_ms),
            width=scale.at(scale.low + step.duration_ms),
            css="bar outlier" if step.outlier else ("bar" if at % 2 else "bar traced"),
        )
        for at, step in enumerate(rank.steps[:_MOST_BARS])
    )
    return [Lane(label="steps", note=f"{rank.steps[0].index} to {rank.steps[-1].index}", marks=marks)]


def _busy_lane(rank: RankReport, scale: Scale) -> list[Lane]:
    points = [(scale.at(point.at_ms), point.busy_ratio) for point in rank.busy_over_time]
    if len(points) < 2 or rank.gpu is None:
        return []
    return [
        Lane(
            label="GPU busy",
            note=f"{units.share(rank.gpu.busy_ratio)}, 0 to 100 %",
            area=_area(points),
            tall=True,
        )
    ]


def _memory_lane(rank: RankReport, scale: Scale) -> list[Lane]:
    most = max((point.allocated_bytes for point in rank.memory), default=0)
    if len(rank.memory) < 2 or most <= 0:
        return []
    points = [(scale.at(point.at_ms), point.allocated_bytes / most) for point in rank.memory]
    return [Lane(label="memory", note=f"0 to {units.size(most)}", area=_area(points), tall=True)]


def _area(points: Sequence[tuple[float, float]]) -> str:
    """A stepped area in 1000 x 100: each value holds until the next place."""
    steps = [f"M{points[0][0] * 10:g} {_AREA_HEIGHT:g}"]
    for at, value in points:
        steps.append(f"H{round(at * 10, 1):g}V{round((1 - units.clamped(value)) * _AREA_HEIGHT, 1):g}")
    return "".join(steps) + f"H1000V{_AREA_HEIGHT:g}Z"


def _timeline_summary(rank: RankReport) -> str:
    parts = [units.counted(len(rank.stages), "stage"), units.counted(len(rank.steps), "step")]
    if rank.gpu is not None:
        parts.append(f"GPU busy {units.share(rank.gpu.busy_ratio)} of {units.duration(rank.gpu.span_ms)}")
    return f"{', '.join(parts)}. The tables have the numbers."


def _timeline_readings(rank: RankReport, scale: Scale) -> tuple[Reading, ...]:
    """At every slice of the busy line, else at every stage: where, how busy, how much memory."""
    if not rank.busy_over_time:
        return tuple(
            Reading(
                at=scale.at(stage.start_ms + stage.duration_ms / 2),
                text=sentence(f"{stage.name}: {units.duration(stage.duration_ms)}", 100),
            )
            for stage in thinned(rank.stages)
        )
    return tuple(
        Reading(at=scale.at(point.at_ms), text=_reading_at(rank, point.at_ms, point.busy_ratio))
        for point in rank.busy_over_time[:: max(1, len(rank.busy_over_time) // MOST_READINGS)]
    )


def _reading_at(rank: RankReport, at_ms: float, busy: float) -> str:
    parts = [f"at {units.duration(at_ms)}", f"GPU busy {units.share(busy)}"]
    parts += [
        stage.name for stage in rank.stages if stage.start_ms <= at_ms < stage.start_ms + stage.duration_ms
    ]
    parts += [f"step {s.index}" for s in rank.steps if s.start_ms <= at_ms < s.start_ms + s.duration_ms]
    held = next((point for point in reversed(rank.memory) if point.at_ms <= at_ms), None)
    parts += [f"{units.size(held.allocated_bytes)} allocated"] if held else []
    return sentence(", ".join(parts), 200)
