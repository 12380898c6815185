"""What is worth telling: thresholds that several rules share."""

from __future__ import annotations

from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.stages_and_steps import StageMark
from stepscope.model.vocabulary import Stage

WORTH_TELLING = 0.01
"""Share of the traced time below which a cost is not worth a finding (a warning, that is)."""


def traced_ns(found: Analysis) -> int:
    """The time that costs are measured against: from the first to the last moment of the trace."""
    return max(found.end_ns - found.origin_ns, 1)


def worth_telling(found: Analysis, cost_ns: float) -> bool:
    """Whether a cost is a share of the traced time that somebody would act on."""
    return cost_ns >= WORTH_TELLING * traced_ns(found)


def severity(found: Analysis, cost_ns: float) -> str:
    """``warning`` for what is worth acting on, else ``info``."""
    return "warning" if worth_telling(found, cost_ns) else "info"


def percent(part: float, whole: float) -> str:
    """A share in words."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "0 %"


def stage_positions(found: Analysis, stage: Stage) -> list[int]:
    """Which stage occurrences have this name."""
    marks: tuple[StageMark, ...] = found.marks.stages
    return [index for index, mark in enumerate(marks) if mark.name == stage.value]
