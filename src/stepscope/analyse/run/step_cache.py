"""Step caches: which forwards and steps were computed, in part or not at all, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepscope.model.recording import CachedForward
from stepscope.model.run import Engaged, Forward, StepCacheUse, StepRun
from stepscope.model.vocabulary import StepWork


def work_of(seen: CachedForward) -> StepWork:
    """How much of a forward was computed: as we saw it; where nothing could be watched, the cache's word.

    A block whose attention was taken from a cache has been computed in part.
    """
    if seen.of_blocks and seen.blocks == 0:
        return StepWork.SKIPPED
    if seen.of_blocks or seen.of_parts:
        whole = seen.blocks == seen.of_blocks and seen.parts == seen.of_parts and not seen.reduced
        return StepWork.COMPUTED if whole else StepWork.PARTLY_COMPUTED
    return StepWork.PARTLY_COMPUTED if seen.cached else StepWork.COMPUTED


def with_work(steps: list[StepRun], seen: Sequence[CachedForward]) -> list[StepRun]:
    """The steps with what was computed of each; as they are where no cache was mounted."""
    if not seen or len(seen) != sum(len(step.forwards) for step in steps):
        return steps
    left = iter(seen)
    marked = []
    for step in steps:
        forwards = tuple(replace(forward, work=work_of(next(left))) for forward in step.forwards)
        marked.append(replace(step, forwards=forwards, work=_of_step(forwards)))
    return marked


def _of_step(forwards: tuple[Forward, ...]) -> StepWork:
    kinds = {forward.work for forward in forwards}
    if len(kinds) == 1:
        return next(iter(kinds))
    return StepWork.PARTLY_COMPUTED if kinds else StepWork.COMPUTED


def with_cached_steps(engaged: Engaged, cache: str | None, steps: Sequence[StepRun]) -> Engaged:
    """How many steps were not fully computed; None where no cache was mounted."""
    if cache is None:
        return engaged
    return replace(engaged, cached_steps=sum(step.work is not StepWork.COMPUTED for step in steps))


def disagreement(seen: Sequence[CachedForward]) -> str | None:
    """Where the cache's own word and what we saw differ; None where they agree or it could not be asked."""
    wrong = [
        index
        for index, one in enumerate(seen)
        if one.cached is not None and one.of_blocks and one.cached != (one.blocks < one.of_blocks)
    ]
    if not wrong:
        return None
    return f"the step cache's own word differs from the blocks that were computed in forwards {wrong}"


def use_of(cache: str | None, steps: Sequence[StepRun], seen: Sequence[CachedForward]) -> StepCacheUse | None:
    """What the cache did and was worth; None where none was mounted or no forward of it was seen."""
    if cache is None or not seen:
        return None
    computed, possible = sum(one.blocks for one in seen), sum(one.of_blocks for one in seen)
    inside = any(one.blocks == one.of_blocks and work_of(one) is StepWork.PARTLY_COMPUTED for one in seen)
    return StepCacheUse(
        name=cache,
        cached_steps=tuple(step.index for step in steps if step.work is not StepWork.COMPUTED),
        theoretical_speedup=possible / computed if computed and not inside else None,
        effective_speedup=_effective(steps),
    )


def _effective(steps: Sequence[StepRun]) -> float | None:
    later = [step for step in steps[1:] if not step.traced]  # step 0 warms up
    full = sorted(step.span.duration_ns for step in later if step.work is StepWork.COMPUTED)
    spent = sum(step.span.duration_ns for step in later)
    if not full or not spent:
        return None
    return full[len(full) // 2] * len(later) / spent
