"""Stages and denoising steps of a trace, as host intervals, from the best evidence that the trace holds.

In order of trust: our own spans, annotations by name, Python frames, and as a last resort the repetition of
the kernel sequence. What rests on frames or repetition is marked inferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepscope.analyse.intervals import Intervals
from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.mark_ranges import (
    HostSpan,
    MarkRange,
    annotation_ranges,
    forward_ranges,
    frame_ranges,
    outermost,
    without_repeats,
)
from stepscope.analyse.trace.marks import MarkKind
from stepscope.analyse.trace.recorded import interrupted, recorded_window
from stepscope.analyse.trace.step_marks import (
    StepMark,
    count_within,
    repeated_forwards,
    steps_by_name,
    steps_by_profiler,
    steps_by_repetition,
    steps_by_scheduler,
)
from stepscope.model.trace import Trace
from stepscope.model.vocabulary import STEP_SPAN_PREFIX, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMark:
    """One occurrence of a stage: one host interval or several with only outside time between them."""

    name: str
    spans: tuple[HostSpan, ...]
    inferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The stages in order, the steps in order (``stage_index`` points into ``stages``), and remarks."""

    stages: tuple[StageMark, ...]
    steps: tuple[StepMark, ...]
    forwards: tuple[MarkRange, ...] = ()  # their marks carry the component's name
    transfers: tuple[MarkRange, ...] = ()  # of weights, by offloading
    notes: tuple[str, ...] = ()


def find_marks(trace: Trace, work: GpuWork) -> Marks:
    """The stages, steps and denoiser forwards of a trace."""
    named = annotation_ranges(trace)
    ours = [found for found in named if found.ours]
    framed = [] if ours or not trace.has_stacks else frame_ranges(trace)
    ranges = ours or named
    recorded = recorded_window(trace)
    stages = _stages(ranges, framed, recorded)
    forwards = outermost([found for found in ranges if found.mark.kind is MarkKind.FORWARD])
    if not forwards and framed:
        forwards = forward_ranges(
            trace, [(stage.name, span) for stage in stages for span in stage.spans], framed
        )
    steps, notes = _steps(trace, work, _Evidence(ranges, framed, stages, forwards))
    steps = _with_forwards(trace, work, steps, forwards)
    stages = _with_denoising(stages, steps)
    if before := _inferred_before(trace):
        steps = [replace(step, inferred=f"{STEP_SPAN_PREFIX}{step.index}" in before) for step in steps]
        stages = tuple(replace(stage, inferred=stage.name in before) for stage in stages)
    return Marks(
        stages=stages,
        steps=tuple(replace(step, stage_index=_stage_of(step.span, stages)) for step in steps),
        forwards=tuple(forwards),
        transfers=tuple(found for found in ranges if found.mark.kind is MarkKind.TRANSFER),
        notes=notes,
    )


def _inferred_before(trace: Trace) -> frozenset[str]:
    """The stages and steps that stepscope slice wrote into a cut trace, and that it had inferred."""
    header = trace.metadata.get("stepscope")
    sliced = header.get("sliced") if isinstance(header, dict) else None
    names = sliced.get("inferred") if isinstance(sliced, dict) else None
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _stages(
    ranges: Sequence[MarkRange], framed: Sequence[MarkRange], recorded: Intervals | None
) -> tuple[StageMark, ...]:
    """Stage occurrences by name, completed from frames by the stages that no annotation names."""
    named = without_repeats([found for found in ranges if found.mark.kind is MarkKind.STAGE])
    names = {found.mark.name for found in named}
    added = [
        found
        for found in framed
        if found.mark.kind is MarkKind.STAGE
        and found.mark.name not in names
        and not any(_holds(stage.span, found.span) for stage in named)
    ]
    marks = [StageMark(name=found.mark.name, spans=(found.span,), inferred=False) for found in named]
    marks += [
        StageMark(name=found.mark.name, spans=(found.span,), inferred=True) for found in outermost(added)
    ]
    return _joined(marks, recorded)


def _joined(marks: Sequence[StageMark], recorded: Intervals | None = None) -> tuple[StageMark, ...]:
    """Occurrences in order; neighbours of one name (two prompts encoded in turn) are one occurrence.

    Not if something lies between them that the trace does not hold: that time would become theirs.
    """
    joined: list[StageMark] = []
    for mark in sorted(marks, key=lambda mark: mark.spans[0].start_ns):
        last = joined[-1] if joined else None
        if last and last.name == mark.name and not interrupted(recorded, last.spans[-1], mark.spans[0]):
            joined[-1] = replace(last, spans=last.spans + mark.spans, inferred=last.inferred or mark.inferred)
        else:
            joined.append(mark)
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the trace says of steps, but for the sequence of its kernels."""

    ranges: Sequence[MarkRange]
    framed: Sequence[MarkRange]
    stages: Sequence[StageMark]
    forwards: Sequence[MarkRange]


def _steps(trace: Trace, work: GpuWork, evidence: _Evidence) -> tuple[list[StepMark], tuple[str, ...]]:
    """The steps from the first kind of evidence that gives any, and what there is to remark on them."""
    named = steps_by_name(evidence.ranges)
    if named:
        return named, ()
    schedulers = outermost([one for one in evidence.ranges if one.mark.kind is MarkKind.SCHEDULER])
    by_frame = not schedulers
    if by_frame:
        schedulers = outermost([one for one in evidence.framed if one.mark.kind is MarkKind.SCHEDULER])
    profiled, notes = steps_by_profiler(trace, work, evidence.ranges, schedulers)
    if profiled:
        return profiled, notes
    if schedulers:
        before = [span for stage in evidence.stages for span in stage.spans]
        return steps_by_scheduler(schedulers, evidence.forwards, before, inferred=by_frame), notes
    denoising, other = _by_denoising(evidence.stages)
    return steps_by_repetition(trace, work, denoising, other), notes


def _by_denoising(stages: Sequence[StageMark]) -> tuple[list[HostSpan], list[HostSpan]]:
    """The spans of denoising stages, and those of all others."""
    denoising = [span for stage in stages if stage.name == Stage.DENOISING.value for span in stage.spans]
    other = [span for stage in stages if stage.name != Stage.DENOISING.value for span in stage.spans]
    return denoising, other


def _with_forwards(
    trace: Trace, work: GpuWork, steps: Sequence[StepMark], forwards: Sequence[MarkRange]
) -> list[StepMark]:
    """Each step with its number of denoiser forwards; 0 where it cannot be told."""
    if forwards:
        counts = count_within(forwards, [step.span for step in steps])
        return [replace(step, forwards=count) for step, count in zip(steps, counts, strict=True)]
    return repeated_forwards(trace, work, steps)


def _with_denoising(stages: Sequence[StageMark], steps: Sequence[StepMark]) -> tuple[StageMark, ...]:
    """The stages, with a denoising stage around steps that lie in none."""
    if not steps or any(stage.name == Stage.DENOISING.value for stage in stages):
        return tuple(stages)
    first, last = steps[0].span, steps[-1].span
    loop = replace(first, end_ns=last.end_ns)
    mark = StageMark(name=Stage.DENOISING.value, spans=(loop,), inferred=True)
    return _joined([*stages, mark])


def _stage_of(span: HostSpan, stages: Sequence[StageMark]) -> int:
    """The index of the denoising stage that a step begins in; the nearest before it otherwise."""
    best = 0
    for index, stage in enumerate(stages):
        if stage.spans[0].start_ns <= span.start_ns and stage.name == Stage.DENOISING.value:
            best = index
    return best


def _holds(outer: HostSpan, inner: HostSpan) -> bool:
    """Whether ``inner`` begins inside ``outer``, on whatever thread of the process."""
    return outer.process == inner.process and outer.start_ns <= inner.start_ns < outer.end_ns
