"""Steps as rows, whether they are uniform, and what is different in those that are not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np

from stepscope.analyse.results import ForwardRow, StepRow, StepStatistics, StepTime
from stepscope.analyse.run.step_statistics import OUTLIER_ABOVE, OUTLIER_BELOW, step_statistics
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.gpu_time import busy_ns_by
from stepscope.analyse.trace.host_place import host_place
from stepscope.analyse.trace.nesting import NONE
from stepscope.analyse.trace.step_frames import StepFrames
from stepscope.model.trace import I64

CLEAR = 0.1
"""A difference is named where it explains at least this share of the median step."""

SKIPPED = 0.8
"""A step with fewer kernels than this share of the median step's was partly served from a cache."""


def step_rows(found: Analysis) -> tuple[tuple[StepRow, ...], StepStatistics | None]:
    """The steps with outliers named, and the statistics over them."""
    count = len(found.marks.steps)
    kernels = _per_step(found, np.ones(found.work.kernel_count))
    busy = busy_ns_by(found.work, found.attribution.step, count)
    moved = _transfer_ns(found)
    rows = [
        StepRow(
            index=mark.index,
            stage_index=mark.stage_index,
            start_ms=(window.start_ns - found.origin_ns) / 1e6,
            duration_ms=window.duration_ns / 1e6,
            gpu_busy_ms=busy[position] / 1e6,
            kernel_count=int(kernels[position]),
            forwards=mark.forwards,
            outlier=None,
            inferred=mark.inferred,
            transfer_ms=None if moved is None else moved[position] / 1e6,
        )
        for position, (mark, window) in enumerate(zip(found.marks.steps, found.step_windows, strict=True))
    ]
    if len(rows) < 2:
        return tuple(rows), None
    statistics = step_statistics(
        [
            StepTime(
                index=row.index,
                stage_index=row.stage_index,
                duration_ms=row.duration_ms,
                forwards=row.forwards,
            )
            for row in rows
        ]
    )
    if statistics is None or statistics.median_ms <= 0:
        return tuple(rows), statistics
    usual = _Usual(found, rows, statistics.median_ms)
    return tuple(_with_outlier(found, usual, row, position) for position, row in enumerate(rows)), statistics


def _transfer_ns(found: Analysis) -> list[float] | None:
    """How long each step waited for weights; None where the recorder marked no transfers."""
    if not found.marks.transfers:
        return None
    begun = np.array([one.span.start_ns for one in found.marks.transfers])
    spans = [step.span for step in found.marks.steps]
    return [
        float(found.transfer_ns[(begun >= span.start_ns) & (begun < span.end_ns)].sum()) for span in spans
    ]


def forward_rows(found: Analysis) -> tuple[ForwardRow, ...]:
    """The denoiser's calls in order, where annotations or frames show them."""
    marks = found.marks.forwards
    starts = [step.span.start_ns for step in found.marks.steps]
    forward = found.attribution.forward
    kernels = np.bincount(forward[: found.work.kernel_count] + 1, minlength=len(marks) + 1)[1:]
    busy = busy_ns_by(found.work, forward, len(marks))
    return tuple(
        ForwardRow(
            step=_step_at(found, starts, mark.span.process, mark.span.start_ns),
            component=mark.mark.name,
            start_ms=(window.start_ns - found.origin_ns) / 1e6,
            duration_ms=window.duration_ns / 1e6,
            gpu_busy_ms=busy[index] / 1e6,
            kernel_count=int(kernels[index]),
        )
        for index, (mark, window) in enumerate(zip(marks, found.forward_windows, strict=True))
    )


def _step_at(found: Analysis, starts: list[int], process: int, at_ns: int) -> int | None:
    """The number of the step that a host moment lies in; steps are in order of their ``starts``."""
    position = bisect_right(starts, at_ns) - 1
    if position < 0:
        return None
    step = found.marks.steps[position]
    return step.index if step.span.process == process and at_ns < step.span.end_ns else None


class _Usual:
    """What most steps have, and the idle gaps in order: worked out once for however many outliers."""

    def __init__(self, found: Analysis, rows: list[StepRow], median_ms: float) -> None:
        self.median_ms = median_ms
        self.kernels = float(np.median([row.kernel_count for row in rows]))
        self.forwards = int(np.median([row.forwards for row in rows]))
        self.copied_ms = _per_step(found, found.exposed_copy_ns, copies=True) / 1e6
        self.median_copied_ms = float(np.median(self.copied_ms))
        self.operators = None if len(found.work) else _operators_per_step(found)
        self.median_operators = 0.0 if self.operators is None else float(np.median(self.operators))
        self.gaps = np.argsort(found.gaps.start_ns, kind="stable")
        self.gap_starts_ns = found.gaps.start_ns[self.gaps]
        self._found = found

    @cached_property
    def frames(self) -> StepFrames | None:
        """Where the steps' time was in Python; None where no frames were recorded."""
        return StepFrames(self._found) if len(self._found.trace.frames.name) else None


def _with_outlier(found: Analysis, usual: _Usual, row: StepRow, position: int) -> StepRow:
    if OUTLIER_BELOW <= row.duration_ms / usual.median_ms <= OUTLIER_ABOVE:
        return row
    causes = list(_differences(found, usual, row, position))
    frame = None
    # With a GPU the device's own causes come first: Python that runs beside it costs nothing.
    if row.duration_ms > usual.median_ms and usual.frames and not (causes and len(found.work)):
        frame = usual.frames.difference(position)
    if frame is not None and frame.extra_ms > CLEAR * usual.median_ms:
        causes.append(frame.words)
        row = replace(row, source=frame.source)
    return replace(row, outlier="; ".join(causes) or "nothing else in it differs")


def _differences(found: Analysis, usual: _Usual, row: StepRow, position: int) -> Iterable[str]:
    """What is different in a step, in words, what explains most first."""
    if usual.kernels and row.kernel_count < SKIPPED * usual.kernels:
        yield f"{row.kernel_count:,} kernels instead of {usual.kernels:,.0f} (a cache skipped work)"
    elif usual.kernels and row.kernel_count > (2 - SKIPPED) * usual.kernels:
        yield f"{row.kernel_count:,} kernels instead of {usual.kernels:,.0f}"
    yield from _operators_differ(usual, position)
    if row.forwards != usual.forwards:
        yield f"{row.forwards} denoiser forwards instead of {usual.forwards}"
    if row.duration_ms <= usual.median_ms:
        return
    if usual.copied_ms[position] - usual.median_copied_ms > CLEAR * usual.median_ms:
        yield f"{usual.copied_ms[position]:.1f} ms of exposed copies"
    gap = _longest_gap(found, usual, position)
    if gap is not None and gap[0] > CLEAR * usual.median_ms:
        yield f"the GPU idle for {gap[0]:.1f} ms at once{gap[1]}"


def _operators_differ(usual: _Usual, position: int) -> Iterable[str]:
    """The number of operators where it is not that of most steps and there is no GPU work to count."""
    if usual.operators is None or usual.median_operators <= 0:
        return
    count = int(usual.operators[position])
    if not SKIPPED <= count / usual.median_operators <= 2 - SKIPPED:
        yield f"{count:,} operators instead of {usual.median_operators:,.0f}"


def _operators_per_step(found: Analysis) -> I64:
    """How many operators began in each step, on its own thread of the host."""
    operators, counts = found.trace.operators, np.zeros(len(found.marks.steps), np.int64)
    spans = [step.span for step in found.marks.steps]
    for process, thread in {(span.process, span.thread) for span in spans}:
        rows = (operators.process == process) & (operators.thread == thread)
        starts_ns = np.sort(operators.start_ns[rows])
        here = [at for at, span in enumerate(spans) if (span.process, span.thread) == (process, thread)]
        bounds = np.array([(spans[at].start_ns, spans[at].end_ns) for at in here], np.int64)
        counts[here] = np.diff(np.searchsorted(starts_ns, bounds), axis=1)[:, 0]
    return counts


def _longest_gap(found: Analysis, usual: _Usual, position: int) -> tuple[float, str] | None:
    """The longest idle gap that begins in a step: milliseconds, and what the host was doing, in words."""
    window, gaps = found.step_windows[position], found.gaps
    first, last = np.searchsorted(usual.gap_starts_ns, (window.start_ns, window.end_ns))
    inside = usual.gaps[first:last]
    if not len(inside):
        return None
    longest = int(inside[np.argmax(gaps.end_ns[inside] - gaps.start_ns[inside])])
    length_ms = float(gaps.end_ns[longest] - gaps.start_ns[longest]) / 1e6
    following = int(gaps.next_work[longest])
    if following == NONE or found.work.launch[following] == NONE:
        return length_ms, ""
    middle = int(gaps.start_ns[longest] + found.work.issue_ns[following]) // 2
    process, thread = int(found.work.process[following]), int(found.work.thread[following])
    place = host_place(found.trace, process, thread, middle)
    return length_ms, f" while the host was in {place}" if place else ""


def _per_step(
    found: Analysis, weights: np.ndarray[tuple[int, ...], np.dtype[np.generic]], *, copies: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The sum of a weight over each step's kernels, or over all its work where ``copies``."""
    rows = slice(None) if copies else slice(found.work.kernel_count)
    step = found.attribution.step[rows] + 1
    sums = np.bincount(step, weights=weights, minlength=len(found.marks.steps) + 1)
    return sums[1:].astype(np.float64)
