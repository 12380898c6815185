"""Each kernel and copy: its launch, the operator and Python source around the launch, its stage and step.

Everything hangs on the moment and thread of the launch call: what encloses it there is what launched the
work. GPU time is never used (a kernel runs long after its stage's code has gone on), nor External id (absent
under CUDA graphs and for some drivers). Replays of a graph launch many kernels in one call and keep its
stage and step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.results import Source
from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.mark_ranges import HostSpan
from stepscope.analyse.trace.nesting import NONE, NestedSpans, innermost, thread_keys
from stepscope.analyse.trace.source_policy import (
    frame_source,
    is_module_frame,
    is_python_frame,
    is_user_frame,
    module_class,
)
from stepscope.analyse.trace.stages_and_steps import Marks
from stepscope.model.trace import I32, I64, Trace

MODULE_DEPTH = 32
"""Modules named in a path at most; deeper nesting than this has not been seen."""


@dataclass(frozen=True, slots=True, eq=False)
class HostPlaces:
    """Moments on threads of the host: where work was launched, or a call began."""

    process: I32
    thread: I64
    at_ns: I64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribution:
    """One entry per row of the GPU work; -1 where nothing is known."""

    operator: I64  # row of Trace.operators
    frame: I64  # row of Trace.frames: the one named as the source
    stage: I32  # index into Marks.stages
    step: I32  # position in Marks.steps (not the step's own number)
    forward: I32  # index into Marks.forwards
    source: I32  # id of the source: equal for equal frames; -1 none


def attribute(trace: Trace, work: GpuWork, marks: Marks) -> Attribution:
    """Attribute all work of the GPUs.

    Work whose launch was not recorded stays unattributed, unless the trace has no launches at all: then the
    time on the GPU is all there is.
    """
    known = np.flatnonzero((work.launch != NONE) if len(trace.launches.start_ns) else work.start_ns >= 0)
    place = HostPlaces(work.process[known], work.thread[known], work.issue_ns[known])
    found = attribution_at(trace, marks, place, operators_at(trace, place))

    def spread(values: I64 | I32) -> I64:
        result = np.full(len(work), NONE, np.int64)
        result[known] = values
        return result

    return Attribution(
        operator=spread(found.operator),
        frame=spread(found.frame),
        stage=spread(found.stage).astype(np.int32),
        step=spread(found.step).astype(np.int32),
        forward=spread(found.forward).astype(np.int32),
        source=spread(found.source).astype(np.int32),
    )


def attribution_at(trace: Trace, marks: Marks, place: HostPlaces, operator: I64) -> Attribution:
    """What is around each place, one entry each, given the operator there."""
    frame = source_frames_at(trace, place)
    exact = _exact_sources(trace, operator)
    source = np.where(exact != NONE, exact, np.where(frame != NONE, _frame_ids(trace, frame), NONE))
    steps = [(index, step.span) for index, step in enumerate(marks.steps)]
    forwards = [(index, forward.span) for index, forward in enumerate(marks.forwards)]
    return Attribution(
        operator=operator,
        frame=frame,
        stage=stages_at(marks, place),
        step=_in_spans(place, steps),
        forward=_in_spans(place, forwards),
        source=source.astype(np.int32),
    )


def source_of(trace: Trace, attribution: Attribution, row: int) -> Source | None:
    """The source of one row of GPU work, with the path of modules around it."""
    return source_at(trace, int(attribution.operator[row]), int(attribution.frame[row]))


def source_at(trace: Trace, operator: int, frame: int) -> Source | None:
    """The source given by the rows of an operator and a frame; the operator's own where that is exact."""
    line = trace.sources[trace.operators.source[operator]] if _has_source(trace, operator) else None
    if line is not None and (line.line_exact or frame == NONE):
        return Source(
            file=line.file,
            line=line.line,
            line_exact=line.line_exact,
            function=line.function,
            module_path=line.module_path,
        )
    if frame == NONE:
        return None
    return frame_source(trace.names[trace.frames.name[frame]], _module_path(trace, frame))


def stages_at(marks: Marks, place: HostPlaces) -> I32:
    """The stage around each place, as an index into ``marks.stages``; -1 outside of all."""
    spans = [(index, span) for index, stage in enumerate(marks.stages) for span in stage.spans]
    return _in_spans(place, spans)


def operators_at(trace: Trace, place: HostPlaces) -> I64:
    """The innermost operator around each place, as a row of the operators."""
    operators = trace.operators
    rows = np.arange(len(operators.start_ns))
    return innermost(operators, rows, place.process, place.thread, place.at_ns)


def source_frames_at(trace: Trace, place: HostPlaces) -> I64:
    """The innermost frame of somebody's code; failing that, of any Python file."""
    frames = trace.frames
    user = np.flatnonzero(_named(trace, frames.name, is_user_frame))
    found = innermost(frames, user, place.process, place.thread, place.at_ns)
    missing = found == NONE
    if missing.any():
        python = np.flatnonzero(_named(trace, frames.name, is_python_frame))
        found[missing] = innermost(
            frames, python, place.process[missing], place.thread[missing], place.at_ns[missing]
        )
    return found


def _named(trace: Trace, names: I32, accept: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Rows whose name is accepted; each distinct name is looked at once."""
    accepted = np.zeros(len(trace.names) + 1, np.bool_)
    for name in np.flatnonzero(np.bincount(names, minlength=1)):
        accepted[name] = accept(trace.names[int(name)])
    result: NDArray[np.bool_] = accepted[names]
    return result


def _frame_ids(trace: Trace, frame: I64) -> I64:
    """The same id for frames of the same name: the frame's name index."""
    if not len(trace.frames.name):
        return frame
    return trace.frames.name[np.maximum(frame, 0)].astype(np.int64)


def _exact_sources(trace: Trace, operator: I64) -> I64:
    """Ids of sources that the recorder tied to operators, apart from those of frames."""
    if not len(trace.sources) or not len(operator):
        return np.full(len(operator), NONE, np.int64)
    source = trace.operators.source[np.maximum(operator, 0)].astype(np.int64)
    known = (operator != NONE) & (source != NONE)
    result: I64 = np.where(known, source + len(trace.names), NONE)
    return result


def _has_source(trace: Trace, operator: int) -> bool:
    return operator != NONE and int(trace.operators.source[operator]) != NONE


def _in_spans(place: HostPlaces, spans: list[tuple[int, HostSpan]]) -> I32:
    """Which span holds each launch: spans of its own thread first, else, on threads without any, by time.

    A thread of its own (prefetching, a callback) works for the stage that is open meanwhile.
    """
    found = np.full(len(place.at_ns), NONE, np.int32)
    if not spans:
        return found
    code, pairs = thread_keys(place.process, place.thread)
    for index, (process, thread) in enumerate(pairs):
        asked = code == index
        own = [one for one in spans if (one[1].process, one[1].thread) == (process, thread)]
        usable = own or [one for one in spans if one[1].process == process]
        if usable:
            ids = np.array([one[0] for one in usable], np.int64)
            starts = np.array([one[1].start_ns for one in usable], np.int64)
            ends = np.array([one[1].end_ns for one in usable], np.int64)
            found[asked] = NestedSpans(ids, starts, ends).innermost(place.at_ns[asked])
    return found


def _module_path(trace: Trace, frame: int) -> str | None:
    """Classes of the modules around a frame, outermost first: ``Transformer.Block.Attention``."""
    frames = trace.frames
    start, end = int(frames.start_ns[frame]), int(frames.start_ns[frame] + frames.duration_ns[frame])
    around = np.flatnonzero(
        (frames.start_ns <= start)
        & (frames.start_ns + frames.duration_ns >= end)
        & (frames.thread == frames.thread[frame])
        & (frames.process == frames.process[frame])
    )
    names = [trace.names[int(frames.name[row])] for row in around[:4096]]
    classes = [module_class(name) for name in names if is_module_frame(name)]
    return ".".join(classes[:MODULE_DEPTH]) or None
