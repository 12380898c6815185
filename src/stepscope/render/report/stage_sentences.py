"""What the stages of a run or a trace come to, in a sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stepscope.analyse.results import RunSummary, StageRow, StageTime
from stepscope.model.vocabulary import UNMARKED
from stepscope.render import units
from stepscope.render.report.stage_sums import SHOWN_OCCURRENCES

_COSTLY_SHARE = 0.05
"""A stage that is not the dominant one is named where it came back often and took at least this share."""

BETWEEN_SHARE = 0.1
"""Time of a stage between known calls is told where it is more than this share of the total."""


def between_sentence(run: RunSummary) -> str:
    """Which stages spend much of the run in code that no known call covers; nothing where none does."""
    between: dict[str, float] = {}
    for stage in run.stages:
        between[stage.name] = between.get(stage.name, 0.0) + stage.inferred_ms
    large = {name: units.duration(ms) for name, ms in between.items() if ms > BETWEEN_SHARE * run.total_ms}
    stages = [f"{ms} of {name}" for name, ms in large.items() if name not in UNMARKED]
    unmarked = [f"{ms} {name.strip('()')}" for name, ms in large.items() if name in UNMARKED]
    told = []
    if stages:
        told.append(f"{_listed(stages)} lie between known calls: the pipeline's own code or a callback")
    if unmarked:
        told.append(f"{_listed(unmarked)}: code without a mark; stepscope.stage(name) gives it one")
    return "; ".join(told)


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def dominant_sentence(stages: Sequence[StageTime] | Sequence[StageRow], dominant: str | None) -> str:
    """Which stage dominates, with its share; what it is bound by where the trace tells."""
    occurrences = [stage for stage in stages if stage.name == dominant]
    if dominant is None or not occurrences:
        return "not known: no stages were found" if not stages else "no stage dominates"
    whole = "the run" if isinstance(occurrences[0], StageTime) else "the traced span"
    duration_ms = sum(stage.duration_ms for stage in occurrences)
    text = f"{dominant} {units.duration(duration_ms)}, {units.share(_share(occurrences))} of {whole}"
    if len(occurrences) > 1:
        text += f", in {units.count(len(occurrences))} occurrences"
    longest = max(occurrences, key=lambda stage: stage.duration_ms)
    if isinstance(longest, StageRow):
        if longest.bound_by != "unknown":
            text += f"; {_BOUND_WORDS.get(longest.bound_by, longest.bound_by)}"
            text += " (its longest occurrence)" if _differ(occurrences) else ""
        text += "; inferred, not marked in the trace" if longest.inferred else ""
    return text + _often(stages, dominant)


def _share(occurrences: Sequence[StageTime | StageRow]) -> float:
    return sum(stage.share for stage in occurrences)


def _differ(occurrences: Sequence[StageTime | StageRow]) -> bool:
    return len({stage.bound_by for stage in occurrences if isinstance(stage, StageRow)}) > 1


def _often(stages: Sequence[StageTime] | Sequence[StageRow], dominant: str) -> str:
    """Another stage that came back again and again and cost: a decoder called every step."""
    counts = Counter(stage.name for stage in stages if stage.name != dominant)
    often = {
        name: _share([stage for stage in stages if stage.name == name])
        for name, count in counts.items()
        if count > SHOWN_OCCURRENCES
    }
    costly = max(often, key=often.__getitem__, default=None)
    if costly is None or often[costly] < _COSTLY_SHARE:
        return ""
    return f"; {costly} ran {units.count(counts[costly])} times, {units.share(often[costly])}"


_BOUND_WORDS = {
    "gpu": "GPU-bound",
    "host": "host-bound: the GPU waits for launches",
    "copy": "copy-bound",
    "communication": "communication-bound",
}
