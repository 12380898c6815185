"""Stages as bars: one lane a stage, however often it came back, and no more than a page can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from stepscope.analyse.results import RankReport, RunSummary, StageRow, StageTime
from stepscope.model.vocabulary import BoundBy
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
from stepscope.render.report.stage_sums import MIXED, AnyStage, StageSum, sum_of_rows, summed_times

_MOST_LANES = 40
"""Stages beyond that many, the shortest, share one lane: a program may name as many as it likes."""

_FEW_BARS = 100
_NEAR = 0.2
"""Of more bars than a few, those nearer than this (per cent of the lane, a pixel or two) are drawn as one."""

_LONGEST_LABEL = 60
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Bar:
    left: float  # per cent
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _StageLane:
    """A stage and all its bars, in order of time."""

    name: str
    note: str
    duration_ms: float
    bars: tuple[_Bar, ...]


def run_waterfall(run: RunSummary, prefix: str) -> Chart | None:
    """The run's stages one after the other; gaps between them are in the total, not in the drawing.

    A stage that comes back again and again is one lane, as it is one row of the tables.
    """
    durations = [stage.duration_ms for stage in run.stages]
    drawable = units.drawable(run.total_ms, *durations)
    scale = scale_of(0.0, max(run.total_ms, sum(durations))) if drawable else None
    if not run.stages or scale is None:
        return None
    starts = accumulate(durations[:-1], initial=0.0)
    bars = [_Bar(scale.at(start), scale.at(ms)) for start, ms in zip(starts, durations, strict=True)]
    bar_of = {id(stage): bar for stage, bar in zip(run.stages, bars, strict=True)}
    sums = summed_times(run.stages)
    dominant = sentence(run.dominant_stage or "none", _LONGEST_LABEL)
    return Chart(
        id=f"{prefix}-waterfall",
        title="Stages in order",
        summary=f"{_counted(sums, len(run.stages))} of {units.duration(run.total_ms)}; "
        f"{dominant} dominates. The stage table has the numbers.",
        lanes=_lanes([_time_lane(one, bar_of) for one in sums], run.dominant_stage),
        ticks=ticks_of(scale),
        readings=tuple(
            Reading(
                at=round(bar.left + bar.width / 2, 3),
                text=f"{sentence(stage.name, _LONGEST_LABEL)}: {_time_and_share(stage)}",
            )
            for stage, bar in thinned(list(zip(run.stages, bars, strict=True)))
        ),
    )


def rank_stage_lanes(rank: RankReport, scale: Scale) -> tuple[Lane, ...]:
    """A lane for each stage of a trace: one that occurs twice has two bars in it."""
    by_name: dict[str, list[StageRow]] = {}
    for stage in rank.stages:
        by_name.setdefault(stage.name, []).append(stage)
    lanes = [
        _StageLane(
            name=name,
            note=_rank_note(found),
            duration_ms=sum(stage.duration_ms for stage in found),
            bars=tuple(
                _Bar(scale.at(stage.start_ms), scale.at(scale.low + stage.duration_ms)) for stage in found
            ),
        )
        for name, found in by_name.items()
    ]
    return _lanes(lanes, rank.dominant_stage)


def thinned(items: Sequence[Item]) -> Sequence[Item]:
    """Every so many of them, so that a chart has at most ``MOST_READINGS`` to read out."""
    return items[:: max(1, -(-len(items) // MOST_READINGS))]


def _counted(sums: Sequence[StageSum[StageTime]], occurrences: int) -> str:
    if len(sums) == occurrences:
        return units.counted(occurrences, "stage")
    stages = len({one.stage.name for one in sums})
    return f"{units.counted(stages, 'stage')} in {units.count(occurrences)} occurrences"


def _time_lane(one: StageSum[StageTime], bar_of: dict[int, _Bar]) -> _StageLane:
    return _StageLane(
        name=one.stage.name,
        note=_time_and_share(one.stage) + _times(one.times),
        duration_ms=one.stage.duration_ms,
        bars=tuple(bar_of[id(stage)] for stage in one.occurrences),
    )


def _time_and_share(stage: AnyStage) -> str:
    return f"{units.duration(stage.duration_ms)}, {units.share(stage.share)}"


def _times(count: int) -> str:
    return f", {units.count(count)} times" if count > 1 else ""


def _rank_note(found: Sequence[StageRow]) -> str:
    whole = sum_of_rows(found)
    bound = "" if whole.bound_by in {BoundBy.UNKNOWN, MIXED} else f", {whole.bound_by}-bound"
    return sentence(_time_and_share(whole) + _times(len(found)) + bound, _LONGEST_LABEL)


def _lanes(lanes: Sequence[_StageLane], dominant: str | None) -> tuple[Lane, ...]:
    """The lanes in order; of too many the longest, and what is left in one."""
    shown = lanes
    if len(lanes) > _MOST_LANES:
        longest = sorted(lanes, key=lambda lane: -lane.duration_ms)[: _MOST_LANES - 1]
        kept = {id(lane) for lane in longest}
        shown = [lane for lane in lanes if id(lane) in kept]
        shown.append(_together([lane for lane in lanes if id(lane) not in kept]))
    return tuple(
        Lane(
            label=sentence(lane.name, _LONGEST_LABEL),
            note=lane.note,
            marks=_marks(lane.bars, "bar strong" if lane.name == dominant else "bar"),
        )
        for lane in shown
    )


def _together(lanes: Sequence[_StageLane]) -> _StageLane:
    duration_ms = sum(lane.duration_ms for lane in lanes)
    return _StageLane(
        name=units.counted(len(lanes), "more stage"),
        note=f"{units.duration(duration_ms)} together",
        duration_ms=duration_ms,
        bars=tuple(sorted((bar for lane in lanes for bar in lane.bars), key=lambda bar: bar.left)),
    )


def _marks(bars: Sequence[_Bar], css: str) -> tuple[Mark, ...]:
    """A mark for each bar; of many, neighbours that no screen can tell apart are one mark."""
    joined = list(bars) if len(bars) <= _FEW_BARS else _joined(bars)
    return tuple(Mark(left=bar.left, width=bar.width, css=css) for bar in joined)


def _joined(bars: Sequence[_Bar]) -> list[_Bar]:
    found: list[_Bar] = []
    for bar in bars:
        last = found[-1] if found else None
        if last is not None and bar.left - (last.left + last.width) < _NEAR:
            end = max(last.left + last.width, bar.left + bar.width)
            found[-1] = _Bar(last.left, round(end - last.left, 3))
        else:
            found.append(bar)
    return found
