"""Our stage, step and forward spans as trace events on tracks of their own, on host and device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from stepscope.model.run import Run, Span, StepRun
from stepscope.model.vocabulary import FORWARD_SPAN_PREFIX, STEP_SPAN_PREFIX
from stepscope.record.trace_writing.trace_window import Intervals, Survey, TraceClock, microseconds

HOST_TRACK = 1_900_000_000
"""First thread id of our tracks: above any real one (Linux stops at 4,194,304), below 2^31."""
HOST_TRACK_NAME = "stepscope: stages, steps, forwards"
DEVICE_TRACK_NAME = "stepscope: device time of stages, steps, forwards"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """One span of ours in trace time; ``thread`` is the one whose launches it holds."""

    name: str
    start_ns: int
    end_ns: int
    thread: int | None
    arguments: dict[str, int | str] = field(default_factory=dict)


def host_spans(run: Run, clock: TraceClock, window: Intervals, steps: Sequence[int]) -> list[TraceSpan]:
    """The spans of the run that lie in the window (trace ns), clipped to it; steps only those recorded."""
    spans: list[TraceSpan] = []
    for stage in run.stages:
        spans += _clipped(stage.span, stage.span.name, clock, window, stage_index=stage.stage_index)
    for step in run.steps:
        if step.index in steps:
            spans += _step_spans(step, clock, window)
    return spans


def device_spans(spans: Iterable[TraceSpan], survey: Survey) -> dict[int, list[TraceSpan]]:
    """By device: from the first start to the last end of what was launched inside each host span."""
    if not len(survey.activity_start_ns) or not len(survey.correlations):
        return {}
    order = np.argsort(survey.correlations, kind="stable")
    place = np.searchsorted(survey.correlations, survey.activity_correlation, sorter=order)
    launch = order[np.minimum(place, len(order) - 1)]
    linked = survey.correlations[launch] == survey.activity_correlation
    launched_ns = np.where(linked, survey.launch_ns[launch], -1)
    thread = survey.launch_thread[launch]
    by_device: dict[int, list[TraceSpan]] = {}
    for span in spans:
        inside = linked & (launched_ns >= span.start_ns) & (launched_ns < span.end_ns)
        if span.thread is not None:
            inside &= thread == span.thread
        for device in np.unique(survey.activity_device[inside]).tolist():
            chosen = inside & (survey.activity_device == device)
            by_device.setdefault(device, []).append(
                TraceSpan(
                    name=span.name,
                    start_ns=int(survey.activity_start_ns[chosen].min()),
                    end_ns=int(survey.activity_end_ns[chosen].max()),
                    thread=span.thread,
                    arguments=span.arguments,
                )
            )
    return by_device


def span_events(spans: list[TraceSpan], *, process: int, category: str, track_name: str) -> Iterator[bytes]:
    """The spans as events of one process, with the names of their tracks; nested properly on each track."""
    for lane, lane_spans in enumerate(lanes(spans)):
        track = HOST_TRACK + lane
        name = track_name if lane == 0 else f"{track_name} ({lane + 1})"
        yield _metadata("thread_name", process, track, {"name": name})
        yield _metadata("thread_sort_index", process, track, {"sort_index": lane - 1000})
        for span in lane_spans:
            yield msgspec.json.encode(
                {
                    "ph": "X",
                    "cat": category,
                    "name": span.name,
                    "pid": process,
                    "tid": track,
                    "ts": microseconds(span.start_ns),
                    "dur": microseconds(span.end_ns - span.start_ns),
                    "args": _arguments(span),
                }
            )


def lanes(spans: Iterable[TraceSpan]) -> list[list[TraceSpan]]:
    """Distribute spans over as few tracks as their overlaps need: on each, any two are nested or disjoint.

    Spans that merely overlap (steps on a device with several streams) are dropped by Perfetto on one track.
    """
    tracks: list[list[TraceSpan]] = []
    open_ends: list[list[int]] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        for track, ends in zip(tracks, open_ends, strict=True):
            while ends and ends[-1] <= span.start_ns:
                ends.pop()
            if not ends or span.end_ns <= ends[-1]:
                track.append(span)
                ends.append(span.end_ns)
                break
        else:
            tracks.append([span])
            open_ends.append([span.end_ns])
    return tracks


def _step_spans(step: StepRun, clock: TraceClock, window: Intervals) -> list[TraceSpan]:
    spans = _clipped(
        step.span,
        f"{STEP_SPAN_PREFIX}{step.index}",
        clock,
        window,
        stage_index=step.stage_index,
        step=step.index,
    )
    for forward in step.forwards:
        name = forward.span.name
        label = f"_{forward.label}" if forward.label else ""
        full_name = f"{FORWARD_SPAN_PREFIX}{forward.component}{label}"
        spans += _clipped(
            forward.span,
            name if name.startswith(FORWARD_SPAN_PREFIX) else full_name,
            clock,
            window,
            stage_index=step.stage_index,
            step=step.index,
            component=forward.component,
        )
    return spans


def _clipped(
    span: Span, name: str, clock: TraceClock, window: Intervals, **arguments: int | str
) -> list[TraceSpan]:
    """One trace span for each piece of the span inside the window; pieces that touch are one."""
    pieces = Intervals.union(
        part
        for segment in span.segments
        for part in window.clip(clock.at(segment.host_start_ns), clock.at(segment.host_end_ns))
    )
    return [
        TraceSpan(name=name, start_ns=start, end_ns=end, thread=span.thread, arguments=arguments)
        for start, end in zip(pieces.starts, pieces.ends, strict=True)
    ]


def _arguments(span: TraceSpan) -> dict[str, Any]:
    thread = {} if span.thread is None else {"tid": span.thread}
    return {"stepscope": True, **span.arguments, **thread}


def _metadata(name: str, process: int, track: int, arguments: dict[str, int | str]) -> bytes:
    return msgspec.json.encode(
        {"ph": "M", "name": name, "ts": 0, "pid": process, "tid": track, "args": arguments}
    )
