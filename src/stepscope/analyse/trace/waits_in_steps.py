"""Every call inside a traced step that makes the host wait for the device, whatever it costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analyse.intervals import contains, union
from stepscope.analyse.results import Source
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import HostPlaces, operators_at, source_at, source_frames_at
from stepscope.analyse.trace.grouping import group_by
from stepscope.analyse.trace.nesting import NONE
from stepscope.analyse.trace.transfers import operator_name
from stepscope.model.trace import I64


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitInSteps:
    """One kind of waiting call from one place."""

    call: str
    count: int
    operator: str | None
    source: Source | None


def waits_in_steps(found: Analysis) -> tuple[WaitInSteps, ...]:
    """The waiting calls inside steps by call and place, the most frequent first."""
    in_loop = calls_in_steps(found)
    if not len(in_loop):
        return ()
    calls = found.calls
    place = HostPlaces(calls.process[in_loop], calls.thread[in_loop], calls.start_ns[in_loop])
    frame, operator = source_frames_at(found.trace, place), operators_at(found.trace, place)
    groups = group_by((frame, np.where(frame == NONE, operator, NONE), calls.name[in_loop]))
    merged: dict[tuple[str, str | None, Source | None], int] = {}
    for first, count in zip(groups.first, groups.count, strict=True):
        row, asked = int(first), int(operator[int(first)])
        key = (
            found.name(int(calls.name[in_loop[row]])),
            operator_name(found.trace, asked),
            source_at(found.trace, asked, int(frame[row])),
        )
        merged[key] = merged.get(key, 0) + int(count)
    rows = [
        WaitInSteps(call=call, operator=operator, source=source, count=count)
        for (call, operator, source), count in merged.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.count))


def calls_in_steps(found: Analysis) -> I64:
    """Rows of the blocking calls that begin inside a step, of any thread of its process."""
    calls = found.calls
    inside = np.zeros(len(calls), np.bool_)
    for process in {step.span.process for step in found.marks.steps}:
        spans = [step.span for step in found.marks.steps if step.span.process == process]
        steps = union([span.start_ns for span in spans], [span.end_ns for span in spans])
        inside |= (calls.process == process) & contains(steps, calls.start_ns)
    return np.flatnonzero(inside)
