"""Our stage, step and forward spans as trace events on tracks of their own, on host and device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from stepscope.model.run import Run, Span, StepRun
from stepscope.model.vocabulary import FORWARD_SPAN_PREFIX, STEP_SPAN_PREFIX, TRANSFER_SPAN, UNMARKED
from stepscope.record.trace_writing.drawn import breaks, drawn, transfers_in
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
    place = _Place(run, clock, window)
    spans: list[TraceSpan] = []
    for stage in run.stages:
        if stage.span.name in UNMARKED:
            continue  # no stage: whoever reads the trace would take it for one
        of_stage = {"stage_index": stage.stage_index}
        spans += place.spans(stage.span, stage.span.name, of_stage)
        spans += place.transfers(stage.span, of_stage)
    for step in run.steps:
        if step.index in steps:
            spans += _step_spans(step, place)
    return spans


def device_spans(spans: Iterable[TraceSpan], survey: Survey) -> dict[int, list[TraceSpan]]:
    """By device: from the first start to the last end of what was launched inside each host span."""
    if not len(survey.activity_start_ns) or not len(survey.correlations):
        return {}
    launch = survey.launch_of_activity()
    linked = launch >= 0
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


class _Place:
    """Where the spans of a run lie in trace time: inside the window, in one piece over transfers."""

    def __init__(self, run: Run, clock: TraceClock, window: Intervals) -> None:
        self._run, self._clock, self._window = run, clock, window
        self._breaks = {stage.stage_index: breaks(run, stage.stage_index) for stage in run.stages}

    def spans(self, span: Span, name: str, arguments: Mapping[str, int | str]) -> list[TraceSpan]:
        """One trace span for each piece of the span inside the window; pieces that touch are one."""
        between = self._between(arguments)
        return self._clipped(drawn(self._run, [span], between).pairs(), name, span, arguments)

    def transfers(self, stage: Span, arguments: Mapping[str, int | str]) -> list[TraceSpan]:
        """The transfers of weights inside a stage."""
        found = transfers_in(self._run, stage, self._between(arguments))
        return self._clipped(found, TRANSFER_SPAN, stage, arguments)

    def _between(self, arguments: Mapping[str, int | str]) -> Intervals:
        return self._breaks.get(int(arguments["stage_index"]), Intervals((), ()))

    def _clipped(
        self,
        pieces: Iterable[tuple[int, int]],
        name: str,
        span: Span,
        arguments: Mapping[str, int | str],
    ) -> list[TraceSpan]:
        inside = Intervals.union(
            part
            for start, end in pieces
            for part in self._window.clip(self._clock.at(start), self._clock.at(end))
        )
        return [
            TraceSpan(name=name, start_ns=start, end_ns=end, thread=span.thread, arguments=dict(arguments))
            for start, end in inside.pairs()
        ]


def _step_spans(step: StepRun, place: _Place) -> list[TraceSpan]:
    arguments = {"stage_index": step.stage_index, "step": step.index}
    spans = place.spans(step.span, f"{STEP_SPAN_PREFIX}{step.index}", arguments)
    for forward in step.forwards:
        name = forward.span.name
        label = f"_{forward.label}" if forward.label else ""
        full_name = f"{FORWARD_SPAN_PREFIX}{forward.component}{label}"
        spans += place.spans(
            forward.span,
            name if name.startswith(FORWARD_SPAN_PREFIX) else full_name,
            {**arguments, "component": forward.component},
        )
    return spans


def _arguments(span: TraceSpan) -> dict[str, Any]:
    thread = {} if span.thread is None else {"tid": span.thread}
    return {"stepscope": True, **span.arguments, **thread}


def _metadata(name: str, process: int, track: int, arguments: dict[str, int | str]) -> bytes:
    return msgspec.json.encode(
        {"ph": "M", "name": name, "ts": 0, "pid": process, "tid": track, "args": arguments}
    )
