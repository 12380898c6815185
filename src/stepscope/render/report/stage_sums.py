"""Stages of one name together: a loop that decodes a preview every step has dozens of stage occurrences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from stepscope.analyse.results import StageRow, StageTime
from stepscope.model.vocabulary import BoundBy

SHOWN_OCCURRENCES = 2
"""A name that occurs more often has one summed row in what people read; CSV and JSON keep them all."""

MIXED = "mixed"
"""What the occurrences of one stage are bound by where they differ."""

AnyStage = TypeVar("AnyStage", StageTime, StageRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSum(Generic[AnyStage]):
    """One row: the occurrences that it stands for, and what they come to under the first one's index."""

    occurrences: tuple[AnyStage, ...]
    stage: AnyStage

    @property
    def times(self) -> int:
        """How many occurrences."""
        return len(self.occurrences)


def summed_times(stages: Sequence[StageTime]) -> list[StageSum[StageTime]]:
    """The stages of a run, in order of first occurrence."""
    return [StageSum(occurrences=tuple(group), stage=sum_of_times(group)) for group in _groups(stages)]


def summed_rows(stages: Sequence[StageRow]) -> list[StageSum[StageRow]]:
    """The stages of a trace, in order of first occurrence."""
    return [StageSum(occurrences=tuple(group), stage=sum_of_rows(group)) for group in _groups(stages)]


def _groups(stages: Sequence[AnyStage]) -> list[list[AnyStage]]:
    by_name: dict[str, list[AnyStage]] = {}
    for stage in stages:
        by_name.setdefault(stage.name, []).append(stage)
    groups: list[list[AnyStage]] = []
    for stage in stages:
        group = by_name[stage.name]
        if len(group) <= SHOWN_OCCURRENCES:
            groups.append([stage])
        elif stage is group[0]:
            groups.append(group)
    return groups


def sum_of_times(stages: Sequence[StageTime]) -> StageTime:
    """Occurrences of one stage of a run added up; at least one."""
    return replace(
        stages[0],
        duration_ms=sum(stage.duration_ms for stage in stages),
        share=sum(stage.share for stage in stages),
        host_ms=_sum_of_known([stage.host_ms for stage in stages]),
        device_ms=_sum_of_known([stage.device_ms for stage in stages]),
        inferred_ms=sum(stage.inferred_ms for stage in stages),
    )


def sum_of_rows(stages: Sequence[StageRow]) -> StageRow:
    """Occurrences of one stage of a trace added up; rates of several are not known. At least one."""
    if len(stages) == 1:
        return stages[0]
    peaks = [stage.peak_memory_bytes for stage in stages if stage.peak_memory_bytes is not None]
    bounds = {stage.bound_by for stage in stages} - {BoundBy.UNKNOWN.value} or {BoundBy.UNKNOWN.value}
    return replace(
        stages[0],
        duration_ms=sum(stage.duration_ms for stage in stages),
        share=sum(stage.share for stage in stages),
        gpu_busy_ms=sum(stage.gpu_busy_ms for stage in stages),
        idle_ms=sum(stage.idle_ms for stage in stages),
        kernel_count=sum(stage.kernel_count for stage in stages),
        launch_count=sum(stage.launch_count for stage in stages),
        bound_by=bounds.pop() if len(bounds) == 1 else MIXED,
        tflop=_sum_of_known([stage.tflop for stage in stages]),
        tflop_per_s=None,
        peak_share=None,
        peak_memory_bytes=max(peaks, default=None),
        inferred=any(stage.inferred for stage in stages),
    )


def _sum_of_known(values: Sequence[float | None]) -> float | None:
    """The sum; None where one of the values was not measured, for a part is not the whole."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
