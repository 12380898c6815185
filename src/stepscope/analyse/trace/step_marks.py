"""Denoising steps from one kind of evidence each: names, profiler steps, the scheduler, repetition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.mark_ranges import HostSpan, MarkRange, outermost
from stepscope.analyse.trace.marks import MarkKind
from stepscope.analyse.trace.repetition import Repetition, longest_repetition, repeated_parts
from stepscope.model.trace import I32, I64, Trace

ALIKE = 0.5
"""Cosine between the kernel counts of two recorded steps below which they are not the same work."""

NAMES_COMPARED = 128
"""Names by which recorded steps are compared, the commonest; a few hundred distinct kernels are usual."""

SHORTEST_STEP = 16
"""Kernels (or operators) that a step has at least: shorter repetitions are loops inside something else."""

STRETCH_SHARE = 0.3
"""A repetition must cover this share of the kernels (or operators) to be taken for the denoising loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """One denoising step on the host. ``forwards`` 0: unknown."""

    index: int
    span: HostSpan
    inferred: bool
    forwards: int = 0
    stage_index: int = 0


def steps_by_name(ranges: Sequence[MarkRange]) -> list[StepMark]:
    """Steps that annotations name; those without a number are counted from 0."""
    steps: list[StepMark] = []
    for one in outermost([found for found in ranges if found.mark.kind is MarkKind.STEP]):
        if steps and one.mark.index is not None and one.mark.index == steps[-1].index:
            # A step that a profiler's pause cut in two.
            steps[-1] = replace(steps[-1], span=replace(steps[-1].span, end_ns=one.span.end_ns))
        else:
            index = len(steps) if one.mark.index is None else one.mark.index
            steps.append(StepMark(index=index, span=one.span, inferred=False))
    return steps


def steps_by_profiler(
    trace: Trace, work: GpuWork, ranges: Sequence[MarkRange], schedulers: Sequence[MarkRange]
) -> tuple[list[StepMark], tuple[str, ...]]:
    """Steps from ``ProfilerStep#k``, and what was left out of them.

    A profiler's step is what its owner made it: one step of the loop as a rule, but also whatever follows the
    last one (SGLang records the decoder as one more), or a whole pipeline call.
    """
    found = outermost([found for found in ranges if found.mark.kind is MarkKind.PROFILER_STEP])
    if not found:
        return [], ()
    if schedulers:
        calls = count_within(schedulers, [one.span for one in found])
        if max(calls) > 1 and min((count for count in calls if count), default=0) > 1:
            return [], ("ProfilerStep marks hold several scheduler steps each and are not denoising steps.",)
        like = [count > 0 for count in calls]
    else:
        like = _alike(trace, work, [one.span for one in found])
    steps = [
        StepMark(index=one.mark.index or 0, span=one.span, inferred=False)
        for one, is_step in zip(found, like, strict=True)
        if is_step
    ]
    odd = [one for one, is_step in zip(found, like, strict=True) if not is_step]
    notes = tuple(f"ProfilerStep#{one.mark.index} holds other work than a denoising step." for one in odd)
    return steps, notes


def steps_by_scheduler(
    schedulers: Sequence[MarkRange],
    forwards: Sequence[MarkRange],
    stages: Sequence[HostSpan],
    *,
    inferred: bool,
) -> list[StepMark]:
    """Steps that end with the last scheduler call before the next forward or stage; the next begins there."""
    ends = _step_ends(schedulers, forwards)
    steps: list[StepMark] = []
    start_ns = _loop_start(schedulers[0].span, forwards, stages)
    for index, end in enumerate(ends):
        steps.append(StepMark(index=index, span=replace(end, start_ns=start_ns), inferred=inferred))
        start_ns = end.end_ns
        passed = [stage.end_ns for stage in stages if start_ns <= stage.start_ns]
        following = ends[index + 1].start_ns if index + 1 < len(ends) else None
        if following is not None and any(end_ns <= following for end_ns in passed):
            # Another stage lies between: a second loop. Its first step begins where that stage ends.
            start_ns = _loop_start(ends[index + 1], forwards, stages)
    return steps


def steps_by_repetition(
    trace: Trace, work: GpuWork, denoising: Sequence[HostSpan], other: Sequence[HostSpan]
) -> list[StepMark]:
    """Steps from the repeating sequence of kernels, or of operators where no device took part.

    Searched inside the denoising stage where that is known, and never in another stage: a decoder that works
    in chunks repeats as well.
    """
    if work.kernel_count:
        issue_ns = work.issue_ns[: work.kernel_count]
        rows = np.argsort(issue_ns, kind="stable")
        rows = rows[_searched(issue_ns[rows], denoising, other)]
        found = _loop(work.name[rows])
        return _repeated_steps(found, work.issue_ns[rows], work.thread[rows], work.process[rows])
    operators = trace.operators
    if not len(operators.start_ns):
        return []
    threads, counts = np.unique(operators.thread, return_counts=True)
    rows = np.flatnonzero(operators.thread == threads[np.argmax(counts)])
    rows = rows[_searched(operators.start_ns[rows], denoising, other)]
    found = _loop(operators.name[rows])
    return _repeated_steps(found, operators.start_ns[rows], operators.thread[rows], operators.process[rows])


def repeated_forwards(trace: Trace, work: GpuWork, steps: Sequence[StepMark]) -> list[StepMark]:
    """The steps with their forwards counted from repetition inside them; equal steps are counted once."""
    known: dict[bytes, int] = {}
    counted = []
    launched = _Launched(work)
    for step in steps:
        operators, kernels = _operators_in(trace, step.span), launched.inside(step.span)
        key = operators.tobytes() + b"|" + kernels.tobytes()
        if key not in known:
            known[key] = repeated_parts(operators) or repeated_parts(kernels)
        counted.append(replace(step, forwards=known[key]))
    usual = {step.forwards for step in counted} - {0}
    # Kernels vary a little from step to step; a count that only some steps gave holds for all of equal size.
    return [replace(step, forwards=min(usual)) if len(usual) == 1 else step for step in counted]


def _operators_in(trace: Trace, span: HostSpan) -> I32:
    """The operators called in a span on its thread, in order."""
    operators = trace.operators
    first, last = np.searchsorted(operators.start_ns, (span.start_ns, span.end_ns))
    names: I32 = operators.name[first:last][operators.thread[first:last] == span.thread]
    return names


class _Launched:
    """The kernels in order of their launch, sorted once for however many spans are asked for."""

    def __init__(self, work: GpuWork) -> None:
        issued = work.issue_ns[: work.kernel_count]
        order = np.argsort(issued, kind="stable")
        self._issue_ns, self._name = issued[order], work.name[order]

    def inside(self, span: HostSpan) -> I32:
        """The names of the kernels launched in a span, in order."""
        first, last = np.searchsorted(self._issue_ns, (span.start_ns, span.end_ns))
        names: I32 = self._name[first:last]
        return names


def _searched(at_ns: I64, denoising: Sequence[HostSpan], other: Sequence[HostSpan]) -> NDArray[np.bool_]:
    """Which moments may belong to the denoising loop."""

    def inside(spans: Sequence[HostSpan]) -> NDArray[np.bool_]:
        held = np.zeros(len(at_ns), np.bool_)
        for span in spans:
            held |= (at_ns >= span.start_ns) & (at_ns < span.end_ns)
        return held

    return inside(denoising) if denoising else ~inside(other)


def _loop(sequence: I32) -> Repetition | None:
    found = longest_repetition(sequence)
    if found is None or found.period < SHORTEST_STEP or found.covered < STRETCH_SHARE * len(sequence):
        return None
    return found


def _repeated_steps(found: Repetition | None, issue_ns: I64, thread: I64, process: I32) -> list[StepMark]:
    if found is None:
        return []
    bounds = [found.start + found.period * index for index in range(found.count + 1)]
    # The last step ends with its last kernel, not with whatever comes next.
    ends = [int(issue_ns[bound]) for bound in bounds[1:-1]] + [int(issue_ns[bounds[-1] - 1]) + 1]
    return [
        StepMark(
            index=index,
            span=HostSpan(
                process=int(process[bounds[index]]),
                thread=int(thread[bounds[index]]),
                start_ns=int(issue_ns[bounds[index]]),
                end_ns=ends[index],
            ),
            inferred=True,
        )
        for index in range(found.count)
    ]


def _step_ends(schedulers: Sequence[MarkRange], forwards: Sequence[MarkRange]) -> list[HostSpan]:
    """The last scheduler call of each step: calls with no forward between them belong to one step."""
    starts = sorted(found.span.start_ns for found in forwards)
    ends: list[HostSpan] = []
    for call in schedulers:
        span = call.span
        # No forward begins between the two calls.
        if ends and starts and bisect_left(starts, ends[-1].end_ns) >= bisect_left(starts, span.start_ns):
            ends[-1] = span
        else:
            ends.append(span)
    return ends


def _loop_start(first_call: HostSpan, forwards: Sequence[MarkRange], stages: Sequence[HostSpan]) -> int:
    """Where the first step of a loop begins: at its first forward after the stage before it."""
    before = max((stage.end_ns for stage in stages if stage.end_ns <= first_call.start_ns), default=None)
    starts = [
        found.span.start_ns
        for found in forwards
        if found.span.start_ns < first_call.start_ns and (before is None or found.span.start_ns >= before)
    ]
    if starts:
        return min(starts)
    return first_call.start_ns if before is None else before


def _alike(trace: Trace, work: GpuWork, spans: Sequence[HostSpan]) -> list[bool]:
    """Whether each span does the work that most of them do, told from counts of kernels (or operators)."""
    if len(spans) < 2:
        return [True] * len(spans)
    counts = _histograms(_names_in(trace, work, spans))
    norm = np.linalg.norm(counts, axis=1)
    typical = np.median(counts, axis=0)
    scale = norm * np.linalg.norm(typical)
    cosine = np.divide(counts @ typical, scale, out=np.zeros(len(spans)), where=scale > 0)
    if not np.any(cosine >= ALIKE):
        return [True] * len(spans)
    return [bool(value >= ALIKE) for value in cosine]


def _names_in(trace: Trace, work: GpuWork, spans: Sequence[HostSpan]) -> list[I32]:
    """The names of what each span launched; of the operators in it where it launched nothing."""
    launched = _Launched(work)
    return [
        kernels if len(kernels := launched.inside(span)) else _operators_in(trace, span) for span in spans
    ]


def _histograms(names: Sequence[I32]) -> NDArray[np.float64]:
    """How often each of the commonest names occurs in each span; all other names share a last column."""
    distinct, counts = np.unique(np.concatenate(names), return_counts=True)
    common = np.sort(distinct[np.argsort(-counts, kind="stable")[:NAMES_COMPARED]])
    table = np.zeros((len(names), len(common) + 1))
    for row, found in enumerate(names):
        place = np.searchsorted(common, found)
        known = (place < len(common)) & (common[np.minimum(place, len(common) - 1)] == found)
        table[row] = np.bincount(np.where(known, place, len(common)), minlength=len(common) + 1)
    return table


def count_within(ranges: Sequence[MarkRange], spans: Sequence[HostSpan]) -> list[int]:
    """How many of the ranges begin inside each span, on whatever thread of its process."""
    starts: dict[int, list[int]] = {}
    for one in ranges:
        starts.setdefault(one.span.process, []).append(one.span.start_ns)
    for of_process in starts.values():
        of_process.sort()
    return [
        bisect_left(begun, span.end_ns) - bisect_left(begun, span.start_ns)
        for span in spans
        for begun in (starts.get(span.process, []),)
    ]
