"""FLOPs of each stage from recorded shapes, the rate achieved, and its share of the device's dense peak."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from stepscope.analyse.kernels.flops import operator_dtypes, operator_flops
from stepscope.analyse.kernels.peaks import Peak, peak_of
from stepscope.analyse.results import StageRow
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import HostPlaces, stages_at
from stepscope.model.trace import I64, Operators


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFlops:
    """What a stage computed. The rate is over its whole duration, idle time included."""

    flop: float
    flop_per_s: float
    flop_per_busy_s: float  # over the time the GPU was busy with it: nothing can exceed the peak in that
    peak: Peak | None


def stage_flops(found: Analysis, rows: tuple[StageRow, ...]) -> tuple[StageFlops | None, ...]:
    """Per stage, None where the trace has no shapes or the stage multiplies nothing."""
    trace = found.trace
    if not trace.has_shapes or not len(found.work):
        return (None,) * len(rows)
    flops = operator_flops(trace.operators, trace.names, trace.shapes)
    counted = np.flatnonzero(~np.isnan(flops))
    operators = trace.operators
    places = HostPlaces(operators.process[counted], operators.thread[counted], operators.start_ns[counted])
    stage = stages_at(found.marks, places)
    return tuple(
        _of_stage(found, row, counted[stage == index], float(flops[counted[stage == index]].sum()))
        for index, row in enumerate(rows)
    )


def with_flops(rows: tuple[StageRow, ...], flops: tuple[StageFlops | None, ...]) -> tuple[StageRow, ...]:
    """The stage rows with what is known of their FLOPs."""
    return tuple(
        row
        if done is None
        else replace(
            row,
            tflop=done.flop / 1e12,
            tflop_per_s=done.flop_per_s / 1e12,
            peak_share=done.flop_per_s / done.peak.flop_per_s if done.peak else None,
        )
        for row, done in zip(rows, flops, strict=True)
    )


def above_peak(rows: tuple[StageRow, ...], flops: tuple[StageFlops | None, ...]) -> tuple[str, ...]:
    """A reason for each stage that would have computed faster than its device can: its time is wrong."""
    return tuple(
        f"{row.name} would have reached {done.flop_per_busy_s / 1e12:,.0f} TFLOP/s in {done.peak.dtype}, "
        f"{done.peak.device} does {done.peak.flop_per_s / 1e12:,.0f} at most: GPU events are missing"
        for row, done in zip(rows, flops, strict=True)
        if done is not None and done.peak is not None and done.flop_per_busy_s > done.peak.flop_per_s
    )


def _of_stage(found: Analysis, row: StageRow, operators: I64, flop: float) -> StageFlops | None:
    if not flop or row.duration_ms <= 0:
        return None
    busy_s = row.gpu_busy_ms / 1e3
    return StageFlops(
        flop=flop,
        flop_per_s=flop / (row.duration_ms / 1e3),
        flop_per_busy_s=flop / busy_s if busy_s > 0 else 0.0,
        peak=_peak(found, operators),
    )


def _peak(found: Analysis, operators: I64) -> Peak | None:
    """The peak for the dtype that most of these operators multiply."""
    used = {device.device for device in found.devices}
    device = next((one for one in found.trace.devices if one.id in used), None)
    dtypes = operator_dtypes(_rows(found.trace.operators, operators), found.trace.names, found.trace.shapes)
    return peak_of(device.name, dtypes[0][0]) if device is not None and dtypes else None


def _rows(table: Operators, rows: I64) -> Operators:
    return Operators(**{column.name: getattr(table, column.name)[rows] for column in fields(Operators)})
