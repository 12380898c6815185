"""Whose time it is where operators nest: each moment is the innermost operator's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.intervals import Intervals, contains, covered_ns, union
from stepscope.analyse.trace.mark_ranges import HostSpan
from stepscope.analyse.trace.nesting import NONE, NestedSpans, thread_keys
from stepscope.analyse.trace.stages_and_steps import Marks
from stepscope.model.trace import I64, Trace
from stepscope.model.vocabulary import Stage

LONGEST_CALLING_NS = 1_000_000
"""The Python between two operators of a model takes 1 to 100 µs; ten times that is something else."""

Thread = tuple[int, int]
"""Process index and thread."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelfTime:
    """Self time by row of the operators, inside what of the trace is counted."""

    self_ns: I64  # by row of Trace.operators; 0 for those that are not counted
    python_ns: I64  # by row: what passed in no operator since the one before; 0 for nested ones
    outermost: NDArray[np.bool_]  # by row: in no other operator
    counted: I64  # rows of the operators that are counted, in order
    traced_ns: int  # the time they are counted in, summed over threads
    basis: str  # in words

    @property
    def calling_ns(self) -> int:
        """Time between operators in which Python calls the next: a longer pause is a wait or a callback."""
        return int(self.python_ns[self.python_ns < LONGEST_CALLING_NS].sum())

    @property
    def inside_ns(self) -> int:
        """Time in any operator."""
        return int(self.self_ns.sum())


def self_times(trace: Trace, marks: Marks) -> SelfTime:
    """Self time of the operators in the stages and steps, on their threads; one operator at least.

    Without any the thread that has most operator time is counted. An operator's self time is its duration
    less that of the operators inside it; of ranges that overlap without nesting each moment is counted once.
    """
    operators = trace.operators
    code, threads = thread_keys(operators.process, operators.thread)
    windows, basis = _windows(trace, marks, code, threads)
    self_ns = np.zeros(len(operators.start_ns), np.int64)
    python_ns, outermost = np.zeros_like(self_ns), np.zeros(len(self_ns), np.bool_)
    counted = np.zeros(len(self_ns), np.bool_)
    for index, thread in enumerate(threads):
        if thread not in windows:
            continue
        rows = np.flatnonzero(code == index)
        edges = windows[thread]
        self_ns[rows] = _self_ns(operators.start_ns[rows], operators.duration_ns[rows], edges)
        python_ns[rows], outermost[rows] = _python_ns(
            operators.start_ns[rows], operators.duration_ns[rows], edges
        )
        counted[rows] = contains(edges, operators.start_ns[rows])
    return SelfTime(
        self_ns=self_ns,
        python_ns=python_ns,
        outermost=outermost,
        counted=np.flatnonzero(counted | (self_ns > 0)),
        traced_ns=sum(edges.total_ns for edges in windows.values()),
        basis=basis,
    )


def _windows(
    trace: Trace, marks: Marks, code: I64, threads: list[Thread]
) -> tuple[dict[Thread, Intervals], str]:
    """What is counted of each thread that has operators, and in words."""
    stages = [span for stage in marks.stages for span in stage.spans]
    steps = [step.span for step in marks.steps]
    only_steps = steps and all(stage.name == Stage.DENOISING.value for stage in marks.stages)
    spans: list[HostSpan] = steps if only_steps else [*stages, *steps]
    windows = {
        thread: union([span.start_ns for span in own], [span.end_ns for span in own])
        for thread in threads
        if (own := [span for span in spans if (span.process, span.thread) == thread])
    }
    if windows:
        return windows, _steps(len(steps)) if only_steps else "the traced stages"
    start_ns, duration_ns = trace.operators.start_ns, trace.operators.duration_ns
    busiest = int(np.argmax(np.bincount(code, weights=duration_ns)))
    rows = code == busiest
    whole = union([int(start_ns[rows].min())], [int((start_ns + duration_ns)[rows].max())])
    return {threads[busiest]: whole}, "the thread with most operators"


def _steps(count: int) -> str:
    return "the traced step" if count == 1 else f"the {count:,} traced steps"


def _self_ns(start_ns: I64, duration_ns: I64, windows: Intervals) -> I64:
    """Self time inside the windows: between two neighbouring bounds one operator is innermost, or none."""
    end_ns = start_ns + np.maximum(duration_ns, 0)
    bounds = np.unique(np.concatenate((start_ns, end_ns, windows.start_ns, windows.end_ns)))
    at_ns, length_ns = bounds[:-1], np.diff(bounds)
    lasting = np.flatnonzero(end_ns > start_ns)
    owner = NestedSpans(lasting, start_ns[lasting], end_ns[lasting]).innermost(at_ns)
    known = contains(windows, at_ns) & (owner != NONE)
    return np.bincount(owner[known], weights=length_ns[known], minlength=len(start_ns)).astype(np.int64)


def _python_ns(start_ns: I64, duration_ns: I64, windows: Intervals) -> tuple[I64, NDArray[np.bool_]]:
    """Time in no operator before each outermost one, and which are outermost; what came last is no one's."""
    order = np.lexsort((-duration_ns, start_ns))
    start, end = start_ns[order], start_ns[order] + np.maximum(duration_ns[order], 0)
    first_ns = int(windows.start_ns[0]) if len(windows) else int(start[0])
    before = np.maximum.accumulate(np.concatenate(([first_ns], end[:-1])))
    outermost = start >= before
    passed = covered_ns(windows, before, np.maximum(start, before))
    python_ns, is_outermost = np.zeros_like(start), np.zeros(len(start), np.bool_)
    python_ns[order], is_outermost[order] = np.where(outermost, passed, 0), outermost
    return python_ns, is_outermost
