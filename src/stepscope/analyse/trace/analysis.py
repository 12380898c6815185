"""Everything that is computed of one trace before it is told: the views and findings are made from this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analyse.kernels.categories import category_of
from stepscope.analyse.trace.attribute import Attribution, attribute
from stepscope.analyse.trace.earlier_work import earlier_work
from stepscope.analyse.trace.gpu_time import (
    DeviceClock,
    DeviceTime,
    WindowTime,
    device_times,
    exposed_copy_ns,
    window_times,
)
from stepscope.analyse.trace.gpu_work import GpuWork, gpu_work
from stepscope.analyse.trace.host_waits import BlockingCalls, blocking_calls
from stepscope.analyse.trace.idle import Gaps, idle_gaps
from stepscope.analyse.trace.kernel_clipping import clipped_durations
from stepscope.analyse.trace.mark_ranges import HostSpan
from stepscope.analyse.trace.stages_and_steps import Marks, find_marks
from stepscope.analyse.trace.trace_trust import Linking, linking
from stepscope.model.trace import I64, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stage or step on the devices' clock (the host's where there is no device)."""

    start_ns: int
    end_ns: int
    time: WindowTime

    @property
    def duration_ns(self) -> int:
        """From its beginning to its end."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Analysis:
    """One trace, analysed. Windows are parallel to the stages, steps, ... of ``marks``."""

    trace: Trace
    work: GpuWork
    marks: Marks
    attribution: Attribution
    devices: tuple[DeviceTime, ...]
    calls: BlockingCalls
    gaps: Gaps
    linking: Linking
    stage_windows: tuple[Window, ...]
    step_windows: tuple[Window, ...]
    forward_windows: tuple[Window, ...]
    transfer_ns: I64  # by transfer of the marks, on the devices' clock
    duration_ns: I64  # per row of the work, clipped where a stream overlaps itself
    clipped_count: int
    exposed_copy_ns: I64  # per row of the work
    origin_ns: int  # what the report's times count from
    end_ns: int

    @property
    def span_ns(self) -> int:
        """From the first to the last kernel, copy or fill; 0 without any."""
        return int(self.work.end_ns.max() - self.work.start_ns.min()) if len(self.work) else 0

    @property
    def busy_ns(self) -> int:
        """Union per device, summed over devices."""
        return sum(device.busy.total_ns for device in self.devices)

    def name(self, index: int) -> str:
        """A name of the trace."""
        return self.trace.names[index]


def analyse(trace: Trace) -> Analysis:
    """Analyse one trace."""
    work = gpu_work(trace, category_of)
    marks = find_marks(trace, work)
    devices = device_times(work)
    calls = blocking_calls(trace, work)
    clock = DeviceClock(work, earlier_work(trace))
    stages = _windows(clock, devices, [(stage.spans[0], stage.spans[-1]) for stage in marks.stages])
    steps = _windows(clock, devices, [(step.span, step.span) for step in marks.steps])
    forwards = _windows(clock, devices, [(one.span, one.span) for one in marks.forwards])
    transfers = [one.span for one in marks.transfers]
    duration_ns, clipped_count = clipped_durations(work)
    origin_ns, end_ns = _extent(trace, work, (*stages, *steps))
    return Analysis(
        trace=trace,
        work=work,
        marks=marks,
        attribution=attribute(trace, work, marks),
        devices=devices,
        calls=calls,
        gaps=idle_gaps(trace, work, devices, calls),
        linking=linking(trace, work),
        stage_windows=stages,
        step_windows=steps,
        forward_windows=forwards,
        transfer_ns=np.array([end - start for start, end in map(clock.window, transfers)], np.int64),
        duration_ns=duration_ns,
        clipped_count=clipped_count,
        exposed_copy_ns=exposed_copy_ns(work, devices),
        origin_ns=origin_ns,
        end_ns=end_ns,
    )


def _windows(
    clock: DeviceClock, devices: tuple[DeviceTime, ...], spans: Sequence[tuple[HostSpan, HostSpan]]
) -> tuple[Window, ...]:
    """One window for each pair of a first and a last span, all looked up at once."""
    bounds = [(clock.window(first)[0], clock.window(last)[1]) for first, last in spans]
    return tuple(
        Window(start_ns=start_ns, end_ns=end_ns, time=time)
        for (start_ns, end_ns), time in zip(bounds, window_times(devices, bounds), strict=True)
    )


def _extent(trace: Trace, work: GpuWork, windows: tuple[Window, ...]) -> tuple[int, int]:
    """From the first to the last moment of GPU work, stages and steps; of operators if there is neither."""
    starts = [window.start_ns for window in windows]
    ends = [window.end_ns for window in windows]
    if len(work):
        starts.append(int(work.start_ns.min()))
        ends.append(int(work.end_ns.max()))
    if not starts and len(trace.operators.start_ns):
        starts.append(int(trace.operators.start_ns.min()))
        ends.append(int(np.max(trace.operators.start_ns + trace.operators.duration_ns)))
    return (min(starts), max(ends)) if starts else (0, 0)
