"""Which steps a trace file is to hold."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.model.run import StepRun


def window_steps(steps: Sequence[StepRun], *, asked: int, all_stages: bool) -> tuple[int, ...]:
    """Steps 1 to ``asked`` of those traced; step 0 only where there is no other; all for -1 or all stages."""
    traced = tuple(step.index for step in steps if step.traced)
    if asked == -1 or all_stages:
        return traced
    return tuple(index for index in traced if 1 <= index <= asked) or traced[:1]
