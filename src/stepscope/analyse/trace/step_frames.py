"""In which Python frame a slow step spent its extra time, where frames were recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.results import Source
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import HostPlaces, source_frames_at
from stepscope.analyse.trace.marks import parse_frame
from stepscope.analyse.trace.nesting import NONE, NestedSpans
from stepscope.analyse.trace.source_policy import frame_source
from stepscope.model.trace import I64


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameDifference:
    """The frame with most self time beyond the median of the other steps."""

    words: str
    extra_ms: float
    source: Source | None  # the innermost of somebody's own frames there


class StepFrames:
    """Self time of every frame in every step, on the thread of the first step.

    A frame's self time is what passes in no frame inside it; an operator is in the frame that called it.
    """

    def __init__(self, found: Analysis) -> None:
        self._trace = found.trace
        frames, spans = found.trace.frames, [step.span for step in found.marks.steps]
        of_thread = (frames.process == spans[0].process) & (frames.thread == spans[0].thread)
        end_ns = frames.start_ns + frames.duration_ns
        first_ns, last_ns = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
        rows = np.flatnonzero(
            of_thread & (frames.start_ns < last_ns) & (end_ns > first_ns) & (frames.duration_ns > 0)
        )
        starts = np.array([span.start_ns for span in spans], np.int64)
        ends = np.array([span.end_ns for span in spans], np.int64)
        bounds = np.unique(np.concatenate((frames.start_ns[rows], end_ns[rows], starts, ends)))
        at_ns, length_ns = bounds[:-1], np.diff(bounds)
        step = np.searchsorted(starts, at_ns, side="right") - 1
        owner = NestedSpans(rows, frames.start_ns[rows], end_ns[rows]).innermost(at_ns)
        known = (step >= 0) & (at_ns < ends[np.maximum(step, 0)]) & (owner != NONE)
        self._step, self._owner, self._length_ns = step[known], owner[known], length_ns[known]
        self._names, self._self_ns = self._table(len(spans))

    def _table(self, steps: int) -> tuple[I64, NDArray[np.float64]]:
        """The names of frames, and their self time by step and name."""
        names, of = np.unique(self._trace.frames.name[self._owner], return_inverse=True)
        size = max(len(names), 1)
        sums = np.bincount(
            self._step * size + of, weights=self._length_ns.astype(np.float64), minlength=steps * size
        )
        return names.astype(np.int64), sums.astype(np.float64).reshape(steps, size)

    def difference(self, position: int) -> FrameDifference | None:
        """Where the step at ``position`` spent most extra time; None where no frame did."""
        others = np.delete(self._self_ns, position, axis=0)
        if not len(self._names) or not len(others):
            return None
        extra = self._self_ns[position] - np.median(others, axis=0)
        most = int(np.argmax(extra))
        if extra[most] <= 0:
            return None
        name = self._trace.names[int(self._names[most])]
        source = self._caller(position, int(self._names[most]))
        words = f"{extra[most] / 1e6:.1f} ms more in {_frame_words(name, source)}"
        return FrameDifference(words=words, extra_ms=float(extra[most]) / 1e6, source=source)

    def _caller(self, position: int, name: int) -> Source | None:
        """Somebody's own frame around the longest stay in the frame called ``name`` in a step."""
        frames = self._trace.frames
        stays = np.flatnonzero((self._step == position) & (frames.name[self._owner] == name))
        row = int(self._owner[stays[np.argmax(self._length_ns[stays])]])
        place = HostPlaces(
            frames.process[row : row + 1], frames.thread[row : row + 1], frames.start_ns[row : row + 1]
        )
        caller = int(source_frames_at(self._trace, place)[0])
        return None if caller == NONE else frame_source(self._trace.names[int(frames.name[caller])], None)


def _frame_words(name: str, source: Source | None) -> str:
    """The frame, and whose code called it where that is another."""
    frame = parse_frame(name)
    said = name if frame is None else f"{frame.function} ({frame.file}:{frame.line})"
    own = frame is not None and source is not None and (frame.file, frame.line) == (source.file, source.line)
    return (
        said
        if source is None or own
        else f"{said}, called in {source.function} ({source.file}:{source.line})"
    )
