"""Rules about the host: what keeps the GPU waiting for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stepscope.analyse.findings.cost import gap_cost_ns, moments
from stepscope.analyse.findings.thresholds import percent, severity, worth_telling
from stepscope.analyse.results import Finding, RankReport
from stepscope.analyse.run.step_statistics import OUTLIER_ABOVE
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import HostPlaces, operators_at, source_at, source_frames_at
from stepscope.analyse.trace.grouping import group_by
from stepscope.analyse.trace.nesting import NONE
from stepscope.analyse.trace.transfers import operator_name
from stepscope.analyse.trace.waits_in_steps import calls_in_steps
from stepscope.model.vocabulary import BoundBy

TINY_KERNEL_NS = 10_000
"""A kernel shorter than the time that one launch takes the host cannot keep the GPU busy."""

NAMED_STEPS = 8
"""Slow steps named one by one in a title; the table of steps has them all."""

_RECORDING_COSTS = "; a profiler slows such a host too, by a third or so"
"""Kernels and launches only, 4 blocks of Qwen-Image on an H200: docs/measurements.md, What tracing costs."""

SLOW_STEPS = "steps.slow"
_ONCE = (
    "What happens once (loading a library, compiling, autotuning) belongs into a warm-up run "
    "with the same shapes; what happens in every run belongs out of the loop."
)
RECURS = "It comes back, so no warm-up helps: do it outside of the loop, or less often, or make it cheaper."
"""What to do about slow steps of one cause."""

_ASK_ONCE = (
    "Keep the value on the host (a Python number computed before the loop), or ask once after the loop; "
    "for schedulers: scheduler.set_begin_index(0). Only exposed idle time can be won."
)


def synchronisation_in_loop(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Calls inside steps that make the host wait for the device, by source, with the idle they expose."""
    in_loop = calls_in_steps(found)
    if not len(in_loop):
        return
    calls = found.calls
    exposed = np.bincount(
        found.gaps.blocking[found.gaps.blocking != NONE],
        weights=found.gaps.synchronising_ns[found.gaps.blocking != NONE],
        minlength=len(calls),
    )[in_loop]
    place = HostPlaces(calls.process[in_loop], calls.thread[in_loop], calls.start_ns[in_loop])
    frame, operator = source_frames_at(found.trace, place), operators_at(found.trace, place)
    names = found.trace.frames.name
    frame_name = np.where(frame != NONE, names[np.maximum(frame, 0)], NONE) if len(names) else frame
    operator_names = found.trace.operators.name
    asked_by = (
        np.where(operator != NONE, operator_names[np.maximum(operator, 0)], NONE)
        if len(operator_names)
        else operator
    )
    groups = group_by((frame_name, np.where(frame_name == NONE, asked_by, NONE), calls.name[in_loop]))
    costs = groups.total(exposed.astype(np.int64)) // max(len(found.devices), 1)
    steps = len(found.marks.steps)
    for index in np.argsort(-costs, kind="stable")[:3]:
        first, count, cost_ns = int(groups.first[index]), int(groups.count[index]), int(costs[index])
        if not worth_telling(found, cost_ns) and (count < steps or index != np.argmax(costs)):
            continue
        call = found.name(int(calls.name[in_loop[first]]))
        by = operator_name(found.trace, int(operator[first]))
        yield Finding(
            id="host.sync_in_loop",
            title=f"{call} makes the host wait inside the denoising loop",
            evidence=(
                f"{count} calls in {steps} steps{f', from {by}' if by else ''}; the GPU idle for "
                f"{cost_ns / 1e6:.2f} ms because of them"
            ),
            cost_ms=cost_ns / 1e6,
            source=source_at(found.trace, int(operator[first]), int(frame[first])),
            remedy=_ASK_ONCE,
            severity=severity(found, cost_ns),
        )


def host_bound_stages(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Stages in which the GPU mostly waits for launches: one finding a name, its occurrences together."""
    if not found.devices:
        return
    bound: dict[str, list[int]] = {}
    for index, stage in enumerate(rank.stages):
        if stage.bound_by == BoundBy.HOST.value:
            bound.setdefault(stage.name, []).append(index)
    for name, indices in bound.items():
        inside = moments(found.stage_windows[index] for index in indices)
        cost_ns = gap_cost_ns(found, found.gaps.host_late_ns, inside)
        if worth_telling(found, cost_ns):
            yield _host_bound(found, rank, name, indices, cost_ns)


def _host_bound(found: Analysis, rank: RankReport, name: str, indices: list[int], cost_ns: int) -> Finding:
    stages = [rank.stages[index] for index in indices]
    rows = np.flatnonzero(np.isin(found.attribution.stage[: found.work.kernel_count], indices))
    typical_ns = float(np.median(found.duration_ns[rows])) if len(rows) else 0.0
    duration_ms = sum(stage.duration_ms for stage in stages)
    per_launch_us = duration_ms * 1e3 / max(sum(stage.launch_count for stage in stages), 1)
    idle_ms = sum(stage.idle_ms for stage in stages) / len(found.devices)
    tiny = typical_ns < TINY_KERNEL_NS
    return Finding(
        id="host.launch_bound" if tiny else "host.late",
        title=f"{name} is {'launch' if tiny else 'host'}-bound: the GPU waits for the host",
        evidence=(
            f"{sum(stage.kernel_count for stage in stages):,} kernels of {typical_ns / 1e3:.1f} µs (median), "
            f"one launch every {per_launch_us:.0f} µs; GPU idle {percent(idle_ms, duration_ms)} of the stage"
            + ("; recording Python stacks slows the host too" if found.trace.has_stacks else _RECORDING_COSTS)
        ),
        cost_ms=cost_ns / 1e6,
        source=None,
        remedy=(
            "Launch less: torch.compile of the repeated blocks (compile_repeated_blocks), CUDA graphs "
            "(mode='reduce-overhead'), or a larger batch."
            + (" Measure again without Python stacks." if found.trace.has_stacks else "")
            + " Step times are those of a run without a profiler."
        ),
    )


def allocation_in_loop(found: Analysis, _: RankReport) -> Iterable[Finding]:
    """Idle time while the host allocated or freed device memory inside steps."""
    cost_ns = gap_cost_ns(found, found.gaps.allocation_ns, moments(found.step_windows))
    if worth_telling(found, cost_ns):
        yield Finding(
            id="host.allocation_in_loop",
            title="Device memory is allocated inside the denoising loop",
            evidence=f"the GPU idle for {cost_ns / 1e6:.1f} ms while the host allocated or freed memory",
            cost_ms=cost_ns / 1e6,
            source=None,
            remedy="Warm up with the same shapes, leave empty_cache() out of the loop, "
            "or set expandable segments.",
        )


def slow_steps(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Steps much slower than the median, with what is different in them."""
    statistics = rank.step_statistics
    if statistics is None:
        return
    slow = [
        row for row in rank.steps if row.outlier and row.duration_ms > OUTLIER_ABOVE * statistics.median_ms
    ]
    cost_ms = sum(row.duration_ms - statistics.median_ms for row in slow)
    if slow and worth_telling(found, cost_ms * 1e6):
        worst = max(slow, key=lambda row: row.duration_ms)
        again = worst.source is not None and sum(row.source == worst.source for row in slow) > 1
        yield Finding(
            id=SLOW_STEPS,
            title=f"Step{'s' if len(slow) > 1 else ''} {named_steps([row.index for row in slow])}"
            f"{' are' if len(slow) > NAMED_STEPS else ''} slower than the others",
            evidence=(
                f"step {worst.index} takes {worst.duration_ms:.1f} ms, "
                f"{worst.duration_ms / statistics.median_ms:.1f} times the median: {worst.outlier}"
            ),
            cost_ms=cost_ms,
            source=worst.source,
            remedy=RECURS if again else _ONCE,
        )


def named_steps(indices: Sequence[int]) -> str:
    """The numbers of steps, the first few one by one."""
    which = ", ".join(str(index) for index in indices[:NAMED_STEPS])
    left = len(indices) - NAMED_STEPS
    return f"{which} and {left:,} more" if left > 0 else which
