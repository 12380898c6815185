"""Whether what makes a step slow happens once or comes back, by the steps of the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from stepscope.analyse.results import StepTime
from stepscope.analyse.run.step_parts import usual_parts
from stepscope.analyse.run.step_statistics import ENOUGH_STEPS, OUTLIER_ABOVE

AS_MUCH_FROM = 1 / 3
"""One cause costs about the same each time; a step that lost far less in the same part was only unlucky."""

_Part = tuple[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The steps of a run that are slow in the same part as a given one."""

    steps: tuple[int, ...]
    every: int | None  # the distance of each to the next, where it is one
    extra_ms: float  # beyond the median of steps traced or not as they are, summed
    part: str  # where in the step, in words


def recurrence(steps: Sequence[StepTime], index: int) -> Recurrence | None:
    """The steps that are slow as step ``index`` is; None where it is not, or alone, or parts are not known.

    Traced steps are held against traced ones, the others against the others.
    """
    slow = [found for kind in (True, False) for found in _slow([s for s in steps if s.traced is kind])]
    given = next((one for one in slow if one.step == index), None)
    if given is None:
        return None
    same = [one for one in slow if one.part == given.part and one.extra_ms >= AS_MUCH_FROM * given.extra_ms]
    if len(same) < 2:
        return None
    same.sort(key=lambda one: one.step)
    part = given.part
    numbers = tuple(one.step for one in same)
    distances = {later - earlier for earlier, later in pairwise(numbers)}
    return Recurrence(
        steps=numbers,
        every=distances.pop() if len(distances) == 1 and len(numbers) > 2 else None,
        extra_ms=sum(one.extra_ms for one in same),
        part=f"in {part[0]}" if part[1] else part[0],
    )


@dataclass(frozen=True, slots=True)
class _Slow:
    step: int
    extra_ms: float
    part: _Part


def _slow(steps: Sequence[StepTime]) -> list[_Slow]:
    """The slow ones of steps that are alike else, each with the part that has most of the difference."""
    alike = [step for step in steps if step.work == "computed" and not step.profiler_warmup]
    usual = usual_parts(alike)
    if len(alike) < ENOUGH_STEPS or usual is None:
        return []
    median_ms = median(step.duration_ms for step in alike)
    found = []
    for step in alike:
        more = {
            (part.name, part.known): part.duration_ms - usual.parts_ms.get((part.name, part.known), 0.0)
            for part in step.parts
        }
        if step.duration_ms > OUTLIER_ABOVE * median_ms and more:
            found.append(_Slow(step.index, step.duration_ms - median_ms, max(more, key=more.__getitem__)))
    return found
