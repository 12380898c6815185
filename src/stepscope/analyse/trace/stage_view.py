"""Stages and GPUs as rows."""

from __future__ import annotations

import numpy as np

from stepscope.analyse.intervals import covered_ns
from stepscope.analyse.results import BusyPoint, GpuSummary, IdleCause, StageRow
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.gpu_time import busy_ns_by
from stepscope.analyse.trace.idle import Cause
from stepscope.analyse.trace.memory import memory_samples, peak_between
from stepscope.analyse.trace.nesting import NONE

SLICES = 200
"""Points of the busy curve: as many as a drawing can show."""


def stage_rows(found: Analysis) -> tuple[StageRow, ...]:
    """Every stage occurrence in order."""
    count = len(found.marks.stages)
    stage = found.attribution.stage
    kernels = np.bincount(stage[: found.work.kernel_count] + 1, minlength=count + 1)[1:]
    busy = busy_ns_by(found.work, stage, count)
    launches = _launches_by_stage(found)
    at_ns, allocated = memory_samples(found.trace)
    whole_ns = max(found.end_ns - found.origin_ns, 1)
    return tuple(
        StageRow(
            name=mark.name,
            stage_index=index,
            start_ms=(window.start_ns - found.origin_ns) / 1e6,
            duration_ms=window.duration_ns / 1e6,
            gpu_busy_ms=busy[index] / 1e6,
            share=window.duration_ns / whole_ns,
            kernel_count=int(kernels[index]),
            bound_by=window.time.bound_by.value,
            inferred=mark.inferred,
            idle_ms=window.time.idle_ns / 1e6,
            launch_count=launches[index],
            peak_memory_bytes=peak_between(at_ns, allocated, mark.spans[0].start_ns, mark.spans[-1].end_ns),
        )
        for index, (mark, window) in enumerate(zip(found.marks.stages, found.stage_windows, strict=True))
    )


def _launches_by_stage(found: Analysis) -> list[int]:
    """Launch calls per stage; a graph's replay is one call."""
    launch = found.work.launch[: found.work.kernel_count]
    known = launch != NONE
    _, first = np.unique(launch[known], return_index=True)
    stage = found.attribution.stage[: found.work.kernel_count][known][first]
    return [int(value) for value in np.bincount(stage + 1, minlength=len(found.marks.stages) + 1)[1:]]


def gpu_summary(found: Analysis) -> GpuSummary | None:
    """The GPUs of one rank together; None where no GPU did anything."""
    if not found.devices:
        return None
    span_ns, busy_ns = found.span_ns, found.busy_ns
    capacity_ns = span_ns * len(found.devices)

    def total_ms(part: str) -> float:
        return float(sum(getattr(device, part).total_ns for device in found.devices)) / 1e6

    return GpuSummary(
        name=_device_names(found),
        device_count=len(found.devices),
        kernel_count=found.work.kernel_count,
        span_ms=span_ns / 1e6,
        busy_ms=busy_ns / 1e6,
        busy_ratio=busy_ns / capacity_ns if capacity_ns else 0.0,
        compute_ms=total_ms("compute"),
        communication_ms=total_ms("communication"),
        exposed_communication_ms=total_ms("exposed_communication"),
        copy_ms=total_ms("copy"),
        exposed_copy_ms=total_ms("exposed_copy"),
        idle_ms=(capacity_ns - busy_ns) / 1e6,
        idle_causes=_idle_causes(found, capacity_ns),
        launch_count=found.linking.launch_count,
        launch_latency_median_us=_launch_latency_us(found),
        kernels_without_launch=found.linking.kernels_without_launch,
        launches_without_kernel=found.linking.launches_without_kernel,
    )


def busy_points(found: Analysis) -> tuple[BusyPoint, ...]:
    """The busy share over time, averaged over devices, in equal slices of the GPUs' span."""
    if not found.devices or not found.span_ns:
        return ()
    first = int(found.work.start_ns.min())
    edges = first + np.arange(SLICES + 1) * found.span_ns // SLICES
    covered = sum(covered_ns(device.busy, edges[:-1], edges[1:]) for device in found.devices)
    length = np.maximum(np.diff(edges), 1) * len(found.devices)
    return tuple(
        BusyPoint(at_ms=float(edge - found.origin_ns) / 1e6, busy_ratio=float(ratio))
        for edge, ratio in zip(edges[:-1], covered / length, strict=True)
    )


def _device_names(found: Analysis) -> str:
    """The model of the devices that worked; of those listed, where ids do not match."""
    used = {device.device for device in found.devices}
    listed = found.trace.devices
    names = [device.name for device in listed if device.id in used] or [device.name for device in listed]
    return ", ".join(dict.fromkeys(names)) or "GPU"


def _idle_causes(found: Analysis, capacity_ns: int) -> tuple[IdleCause, ...]:
    causes = [
        IdleCause(cause=cause.value, total_ms=total_ns / 1e6, share=total_ns / capacity_ns)
        for cause in Cause
        if (total_ns := found.gaps.total_ns(cause)) > 0
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.total_ms))


def _launch_latency_us(found: Analysis) -> float | None:
    """The median from a kernel's launch call to its start, time in the queue included."""
    kernels = slice(found.work.kernel_count)
    known = found.work.launch[kernels] != NONE
    if not known.any():
        return None
    latency = (found.work.start_ns[kernels] - found.work.issue_ns[kernels])[known]
    return float(np.median(latency)) / 1e3
