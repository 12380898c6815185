"""Whether a trace's numbers may be trusted: what was lost, what contradicts, what cannot be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepscope.analyse.trace.gpu_work import GpuWork
from stepscope.analyse.trace.nesting import NONE
from stepscope.model.trace import ReaderWarning, Trace

TOLERATED = 0.02
"""Disagreement above this share is said on the first line of the report."""

_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel|LaunchKernel|GraphLaunch|ModuleLaunch")
_BEGIN_CAPTURE = re.compile(r"StreamBeginCapture")
_END_CAPTURE = re.compile(r"StreamEndCapture")

_DAMAGE = frozenset(("truncated", "damaged_compression", "damaged_table"))
"""Reader warnings after which part of the recording is missing."""

_SKIPPED = frozenset(("malformed_event", "time_out_of_range"))
"""Reader warnings for events that were skipped one by one: they matter by their share."""

_HIDDEN = frozenset(("graph_mode",))
"""Reader warnings after which the file is whole but kernels are hidden in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linking:
    """How launches and GPU work fit together, in numbers."""

    launch_count: int  # calls that launched work, or should have
    kernels_without_launch: int
    before_recording: int  # of those: ran before anything whose launch was recorded, so launched earlier
    launches_without_kernel: int
    started_before_launch: int  # work that began on the GPU before its launch call did


def linking(trace: Trace, work: GpuWork) -> Linking:
    """Count what does not fit. Launches during graph capture run nothing by themselves and do not count."""
    kernels = np.arange(len(work)) < work.kernel_count
    orphan = kernels & (work.launch == NONE)
    linked = work.launch != NONE
    first_linked = work.start_ns[linked].min() if linked.any() else 0
    launching = _launch_calls(trace)
    used = np.zeros(len(trace.launches.start_ns), np.bool_)
    used[work.launch[linked]] = True
    kernel_calls = np.zeros(len(used), np.bool_)
    kernel_calls[work.launch[kernels & linked]] = True
    latency = work.start_ns[linked] - work.issue_ns[linked]
    return Linking(
        launch_count=int(np.count_nonzero(launching | kernel_calls)),
        kernels_without_launch=int(np.count_nonzero(orphan)),
        before_recording=int(np.count_nonzero(orphan & (work.start_ns < first_linked))),
        launches_without_kernel=int(np.count_nonzero(launching & ~used)),
        started_before_launch=int(np.count_nonzero(latency < 0)),
    )


def trust_reasons(trace: Trace, work: GpuWork, found: Linking) -> tuple[str, ...]:
    """Every reason not to trust the trace's numbers; none is the good case."""
    return (
        *_link_reasons(work, found, has_launches=len(trace.launches.start_ns) > 0),
        *incomplete_reasons(trace, work),
        *(warning_text(warning) for warning in trace.warnings if warning.kind in _HIDDEN),
    )


def incomplete_reasons(trace: Trace, work: GpuWork) -> tuple[str, ...]:
    """Why part of the recording is missing: a damaged file, or a GPU that was used but not recorded."""
    reasons = [
        warning_text(warning)
        for warning in trace.warnings
        if warning.kind in _DAMAGE
        or (warning.kind in _SKIPPED and warning.count > TOLERATED * max(trace.event_count, 1))
    ]
    launching = int(np.count_nonzero(_launch_calls(trace)))
    if not len(work) and launching:
        reasons.append(f"no GPU events, though {launching:,} launches were recorded: they were lost")
    return tuple(reasons)


def _link_reasons(work: GpuWork, found: Linking, *, has_launches: bool) -> Iterable[str]:
    lost = found.launches_without_kernel
    if len(work) and lost > TOLERATED * max(found.launch_count, 1):
        yield f"{lost:,} of {found.launch_count:,} launches have no kernel: GPU events were lost"
    orphans = found.kernels_without_launch - found.before_recording
    if has_launches and orphans > TOLERATED * max(work.kernel_count, 1):
        yield f"{orphans:,} of {work.kernel_count:,} kernels have no launch: host events were lost"
    if found.started_before_launch > TOLERATED * max(len(work), 1):
        yield (
            f"{found.started_before_launch:,} of {len(work):,} GPU events begin before their launch: "
            "the clocks of host and device disagree"
        )


def warning_text(warning: ReaderWarning) -> str:
    """A reader's warning as one line."""
    return warning.text if warning.count == 1 else f"{warning.text} ({warning.count:,} times)"


def _launch_calls(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Calls that launch work by their name and are not being captured into a graph.

    Names only decide what should have run a kernel; what did run one is known from correlation.
    """
    launches = trace.launches
    launching = _matching(trace, _LAUNCH)
    begins = np.flatnonzero(_matching(trace, _BEGIN_CAPTURE))
    ends = np.flatnonzero(_matching(trace, _END_CAPTURE))
    for begin in begins:
        thread = launches.thread[begin]
        closing = ends[(ends > begin) & (launches.thread[ends] == thread)]
        until = launches.start_ns[closing[0]] if len(closing) else np.iinfo(np.int64).max
        launching &= ~(
            (launches.thread == thread)
            & (launches.start_ns > launches.start_ns[begin])
            & (launches.start_ns < until)
        )
    return launching


def _matching(trace: Trace, pattern: re.Pattern[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    names = trace.launches.name
    accepted = np.zeros(len(trace.names) + 1, np.bool_)
    for name in np.flatnonzero(np.bincount(names, minlength=1)):
        accepted[name] = bool(pattern.search(trace.names[int(name)]))
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = accepted[names]
    return result
