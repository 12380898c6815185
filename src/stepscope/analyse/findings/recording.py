"""Rules about the recording itself, and about memory over steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import PurePath

from stepscope.analyse.results import Finding, RankReport
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.memory import memory_samples, peak_between

_NAMED_COUNT = re.compile(r"(?:^|[-_.])(?:asked_(?P<asked>\d+)|(?P<count>\d+)_steps)(?=[-_.]|$)")

GROWTH_FROM = 0.02
"""Growth of allocated memory from one step to the next, in every step, that is told (a share)."""

GROWTH_FROM_BYTES = 16 * 1024**2


def recorded_step_count(_: Analysis, rank: RankReport) -> Iterable[Finding]:
    """A file name that promises another number of steps than the trace holds."""
    named = steps_in_name(rank.path)
    recorded = [step.index for step in rank.steps]
    if named is None or not recorded or len(recorded) == named:
        return
    yield Finding(
        id="recording.step_count",
        title=f"{len(recorded)} steps are recorded, the name says {named}",
        evidence=f"steps {min(recorded)} to {max(recorded)} are in the trace",
        cost_ms=None,
        source=None,
        remedy="Count on the steps listed here. SGLang records one step more than asked "
        "(active=N+1); stepscope generate records exactly N.",
    )


def odd_profiler_steps(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Profiler steps that are no denoising steps."""
    for note in found.marks.notes:
        yield Finding(
            id="recording.profiler_step",
            title="A profiler step is not a denoising step",
            evidence=note,
            cost_ms=None,
            source=None,
            remedy="It was left out of the steps.",
            severity="info",
        )


def memory_growth(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Allocated memory that grows from step to step."""
    at_ns, allocated = memory_samples(found.trace)
    spans = [step.span for step in found.marks.steps]
    peaks = [peak_between(at_ns, allocated, span.start_ns, span.end_ns) for span in spans]
    known = [peak for peak in peaks if peak is not None]
    if len(known) < 3 or len(known) != len(peaks):
        return
    grown = [after - before for before, after in pairwise(known)]
    if min(grown) > max(GROWTH_FROM_BYTES, GROWTH_FROM * known[0]):
        yield Finding(
            id="memory.grows",
            title="Allocated memory grows with every step",
            evidence=(
                f"from {known[0] / 1024**2:,.0f} to {known[-1] / 1024**2:,.0f} MiB over {len(known)} steps"
            ),
            cost_ms=None,
            source=None,
            remedy="Something keeps a tensor of each step: a list of latents, a callback, a cache.",
        )


def steps_in_name(path: str) -> int | None:
    """How many steps a file's name says were asked for; None where it says nothing."""
    counts: dict[str, int | None] = {"asked": None, "count": None}
    for match in _NAMED_COUNT.finditer(PurePath(path).name):
        for kind in counts:
            if match[kind] is not None:
                counts[kind] = int(match[kind])
    return counts["asked"] if counts["asked"] is not None else counts["count"]
