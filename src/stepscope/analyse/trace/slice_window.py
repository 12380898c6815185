"""Which intervals of the host's time hold the steps, the stage or the moment that somebody wants."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepscope.analyse.trace.analysis import Analysis, analyse
from stepscope.analyse.trace.mark_ranges import HostSpan
from stepscope.analyse.trace.stages_and_steps import Marks
from stepscope.model.errors import UsageError
from stepscope.model.step_range import StepRange
from stepscope.model.trace import Trace
from stepscope.model.vocabulary import FORWARD_SPAN_PREFIX, STEP_SPAN_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to keep of a trace; all None: everything. ``time_ms`` counts as the report's times do."""

    steps: StepRange | None = None
    stage: str | None = None
    time_ms: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMark:
    """A stage, step or forward that was found in the trace, under the name that our own spans have."""

    name: str
    span: HostSpan
    inferred: bool = False  # it rests on frames or on repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceWindow:
    """Intervals on the trace's clock, the indices of the steps in them, and both in words.

    ``marks`` are what the cut trace needs to be told: cut, it no longer shows that its first step is step 2.
    They are empty where the trace has spans of ours.
    """

    intervals: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]
    what: str
    marks: tuple[SliceMark, ...] = ()


def slice_window(trace: Trace, wanted: Wanted) -> SliceWindow:
    """Find it.

    Raises:
        UsageError: the trace has no such step or stage, or nothing at that time.

    """
    found = analyse(trace)
    window = _window(trace, found, wanted)
    if trace.annotations.ours.any():
        return window
    inside = [
        mark
        for mark in _named(found.marks)
        if any(mark.span.start_ns < high and low < mark.span.end_ns for low, high in window.intervals)
    ]
    return replace(window, marks=tuple(inside))


def _named(marks: Marks) -> list[SliceMark]:
    stages = [
        SliceMark(name=stage.name, span=span, inferred=stage.inferred)
        for stage in marks.stages
        for span in stage.spans
    ]
    steps = [
        SliceMark(name=f"{STEP_SPAN_PREFIX}{step.index}", span=step.span, inferred=step.inferred)
        for step in marks.steps
    ]
    forwards = [
        SliceMark(name=f"{FORWARD_SPAN_PREFIX}{one.mark.name}", span=one.span) for one in marks.forwards
    ]
    return [*stages, *steps, *forwards]


def _window(trace: Trace, found: Analysis, wanted: Wanted) -> SliceWindow:
    marks = found.marks
    if wanted.time_ms is not None:
        low, high = (found.origin_ns + round(one * 1e6) for one in wanted.time_ms)
        inside = tuple(one.index for one in marks.steps if low <= one.span.start_ns < high)
        return SliceWindow(
            intervals=((low, high),),
            steps=inside,
            what=f"{wanted.time_ms[0]:g} to {wanted.time_ms[1]:g} ms",
        )
    if wanted.steps is not None:
        kept = [one for one in marks.steps if one.index in wanted.steps]
        if not kept:
            raise UsageError(f"{trace.path} has no step in {wanted.steps}.", remedy=_steps_there(marks.steps))
        return SliceWindow(
            intervals=_pairs([one.span for one in kept]),
            steps=tuple(one.index for one in kept),
            what=f"steps {wanted.steps}",
        )
    spans = [span for one in marks.stages if one.name == wanted.stage for span in one.spans]
    if not spans:
        names = ", ".join(dict.fromkeys(one.name for one in marks.stages)) or "none"
        raise UsageError(f"{trace.path} has no {wanted.stage}.", remedy=f"It has: {names}.")
    pairs = _pairs(spans)
    inside = tuple(
        one.index for one in marks.steps if any(low <= one.span.start_ns < high for low, high in pairs)
    )
    return SliceWindow(intervals=pairs, steps=inside, what=str(wanted.stage))


def first_to_last_step(trace: Trace) -> tuple[int, int] | None:
    """From the first step's beginning to the last one's end on the devices' clock; None without steps."""
    found = analyse(trace)
    if not found.step_windows:
        return None
    return found.step_windows[0].start_ns, found.step_windows[-1].end_ns


def _pairs(spans: list[HostSpan]) -> tuple[tuple[int, int], ...]:
    return tuple((span.start_ns, span.end_ns) for span in spans)


def _steps_there(steps: tuple[object, ...]) -> str:
    indices = [getattr(one, "index", 0) for one in steps]
    return f"It has steps {min(indices)} to {max(indices)}." if indices else "No steps were found in it."
