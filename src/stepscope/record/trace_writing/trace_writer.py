"""Cuts a raw profiler export to the exact window, adds our spans, compresses it under the name users know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from stepscope.model.errors import RunFailedError
from stepscope.model.file_names import as_file_name
from stepscope.model.run import Run, Span, TraceWindow
from stepscope.record.atomic import atomic_path, free_path
from stepscope.record.trace_writing.busy_until import busy_until
from stepscope.record.trace_writing.drawn import breaks, drawn
from stepscope.record.trace_writing.raw_export import Part, split_export
from stepscope.record.trace_writing.retrack import Retrack
from stepscope.record.trace_writing.trace_spans import (
    DEVICE_TRACK_NAME,
    HOST_TRACK_NAME,
    TraceSpan,
    device_spans,
    host_spans,
    span_events,
)
from stepscope.record.trace_writing.trace_window import (
    DEVICE_ANNOTATION,
    Intervals,
    Survey,
    TraceClock,
    WindowCut,
    survey_export,
)

TRACE_SCHEMA_VERSION = 1
"""Of the ``stepscope`` header. 1 (2026-11): first."""
COMPRESSION_LEVEL = 3
"""isal's levels are 0 to 3; see docs/decisions.md for what each costs and saves."""
WRITE_BYTES = 1024**2
CUT_OFF_NOTE = "the profiler's export was cut off (a full disk?): the trace lacks its end"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContent:
    """What a trace is to hold.

    ``marks`` are host times just before and just after the start of each ``stepscope_anchor`` event in the
    export: they tie the two clocks together more closely than the wall clock can.
    """

    steps: tuple[int, ...]
    asked: int  # --num-profiled-timesteps as given
    full_stages: bool = False
    marks: tuple[tuple[int, int], ...] = ()


def trace_name(request_id: str, rank: int, *, step_count: int, full_stages: bool) -> str:
    """``<request_id>-<N>_steps-global-rank<r>.trace.json.gz``; N is the number recorded."""
    mode = "full_stages" if full_stages else f"{step_count}_steps"
    return f"{as_file_name(request_id)}-{mode}-global-rank{rank}.trace.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePlan:
    """What one trace file will be: its name, the steps it holds and the window on the host clock."""

    name: str
    run: Run
    content: TraceContent
    steps: tuple[int, ...]
    window: Intervals


def write_trace(raw: Path, run: Run, content: TraceContent, directory: Path) -> TraceWindow:
    """Write the trace of a run into ``directory`` and say what is in it.

    Args:
        raw: the profiler's own uncompressed export; it is read twice and left where it is.
        run: tells the spans and the clock anchors.
        content: what the trace is to hold.
        directory: where the file goes; created where it is missing.

    Raises:
        RunFailedError: nothing was recorded, or the directory cannot be written.
        UnreadableInputError: ``raw`` is not a profiler export.

    """
    plan, path = plan_trace(run, content, directory)
    survey = survey_export(raw)
    with atomic_path(path) as temporary:
        _write(raw, temporary, plan, survey)
    return TraceWindow(
        path=str(path.resolve()),
        steps=plan.steps,
        full_stages=content.full_stages,
        asked=content.asked,
        note=window_note(content, plan.steps, len(run.steps)) if survey.whole else CUT_OFF_NOTE,
    )


def plan_trace(run: Run, content: TraceContent, directory: Path) -> tuple[TracePlan, Path]:
    """What the trace file of a run will hold, and its path.

    Raises RunFailedError where nothing was recorded.
    """
    steps = tuple(step.index for step in run.steps if content.full_stages or step.index in content.steps)
    name = trace_name(run.request_id, run.rank, step_count=len(steps), full_stages=content.full_stages)
    path = free_path(directory / name)
    window = _host_window(run, content, steps)
    if not window.starts or not run.anchors:
        raise RunFailedError("no trace was written: the run ended before a step was recorded.")
    return TracePlan(name=path.name, run=run, content=content, steps=steps, window=window), path


def window_note(content: TraceContent, steps: Sequence[int], ran: int) -> str:
    """One line when the trace does not hold what was asked for, of the steps that ran; empty when it does."""
    if content.full_stages:
        return ""
    if tuple(steps) == (0,) and ran > 1:
        return f"recording ended in the first of {ran} steps, so the trace holds step 0"
    if tuple(steps) == (0,):
        return "the run has one step, so the trace holds step 0"
    if content.asked in {-1, len(steps)}:
        return ""
    held = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    follow = "1 follows" if len(steps) == 1 else f"{len(steps)} follow"
    return f"{content.asked} steps were asked for, {follow} step 0: the trace holds {held}"


def _host_window(run: Run, content: TraceContent, steps: Sequence[int]) -> Intervals:
    """The window on the host clock: the recorded steps, or the whole call, while the profiler was at work."""
    if content.full_stages and run.ends is not None:
        window = Intervals.union([(run.ends.start_ns, max(run.ends.returned_ns, run.ends.device_done_ns))])
    else:
        window = Intervals.union(
            interval
            for stage_index, spans in _recorded(run, steps, whole=content.full_stages).items()
            for interval in drawn(run, spans, breaks(run, stage_index)).pairs()
        )
    if not content.marks:
        return window
    return Intervals.union(window.clip(content.marks[0][0], content.marks[-1][1]))


def _recorded(run: Run, steps: Sequence[int], *, whole: bool) -> dict[int, list[Span]]:
    """By stage: its own span, or those of its steps that are recorded."""
    if whole:
        return {stage.stage_index: [stage.span] for stage in run.stages}
    spans: dict[int, list[Span]] = {}
    for step in run.steps:
        if step.index in steps:
            spans.setdefault(step.stage_index, []).append(step.span)
    return spans


def _write(raw: Path, path: Path, plan: TracePlan, survey: Survey) -> None:
    base_ns = int(survey.header.get("baseTimeNanoseconds", 0))
    clock = trace_clock(plan, survey.anchors_ns, base_ns)
    window = clock.intervals(plan.window)
    spans = host_spans(plan.run, clock, window, plan.steps)
    ours = stepscope_header(plan, window, survey.malformed) | {"busy_until": busy_until(survey, window)}
    header = survey.header | {"traceName": plan.name, "stepscope": ours}
    write_events(path, header, _events(raw, WindowCut(survey, window), spans, survey))


def write_events(path: Path, header: Mapping[str, Any], events: Iterator[bytes]) -> None:
    """Write a compressed trace as a stream: the header's keys, then the events."""
    with igzip.open(path, "wb", compresslevel=COMPRESSION_LEVEL) as stream:
        stream.write(msgspec.json.encode(header).removesuffix(b"}") + b',"traceEvents":[\n')
        separator = b""
        for batch in _batches(events):
            stream.write(separator + b",\n".join(batch))
            separator = b",\n"
        stream.write(b"\n]}\n")


def trace_clock(plan: TracePlan, anchors_ns: Sequence[int], base_ns: int) -> TraceClock:
    """By the marks where each one's event is in the file, else by the wall clock."""
    marks = plan.content.marks
    if marks and len(marks) == len(anchors_ns):
        return TraceClock.from_points(narrowest_of_each_end(marks, anchors_ns))
    return TraceClock.from_points((a.host_ns, a.unix_ns - base_ns) for a in plan.run.anchors)


def narrowest_of_each_end(marks: Sequence[tuple[int, int]], trace_ns: Sequence[int]) -> list[tuple[int, int]]:
    """One point of the first half of the marks and one of the second: the one known most closely."""
    points = [
        (after - before, (before + after) // 2, at)
        for (before, after), at in zip(marks, trace_ns, strict=True)
    ]
    halves = (points[: len(points) // 2], points[len(points) // 2 :])
    return [min(half)[1:] for half in halves if half]


def _events(raw: Path, cut: WindowCut, spans: list[TraceSpan], survey: Survey) -> Iterator[bytes]:
    retrack = Retrack(survey)
    for part, event in split_export(raw):
        kept = cut.keep_event(event) if part is Part.EVENT else None
        if kept is not None:
            yield retrack.moved(*kept)
    yield from retrack.metadata()
    yield from span_events(
        spans, process=survey.process, category="user_annotation", track_name=HOST_TRACK_NAME
    )
    for device, on_device in sorted(device_spans(spans, survey).items()):
        yield from span_events(
            on_device, process=device, category=DEVICE_ANNOTATION, track_name=DEVICE_TRACK_NAME
        )


def _batches(events: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Events gathered to about a megabyte: one write each would cost more than the compression."""
    batch: list[bytes] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event)
        if size >= WRITE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def stepscope_header(plan: TracePlan, window: Intervals, malformed: int) -> dict[str, Any]:
    """What a reader needs to know and the profiler did not write. Times are trace ns."""
    run = plan.run
    return {
        "schema": TRACE_SCHEMA_VERSION,
        "version": run.environment.stepscope,
        "request_id": run.request_id,
        "call_id": run.call_id,
        "rank": run.rank,
        "world_size": run.world_size,
        "model": run.workload.model,
        "load_format": run.workload.load_format,
        "steps": plan.steps,
        "asked": plan.content.asked,
        "full_stages": plan.content.full_stages,
        "window": tuple(zip(window.starts, window.ends, strict=True)),
        "malformed_events_skipped": malformed,
        "incomplete_reason": run.incomplete_reason,
    }
