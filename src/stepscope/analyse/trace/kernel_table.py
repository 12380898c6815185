"""The kernel table and the categories: what the GPUs ran, by name and by what it does."""

from __future__ import annotations

import math

import numpy as np

from stepscope.analyse.kernels.ncu import ncu_command
from stepscope.analyse.kernels.occupancy import occupancy_on
from stepscope.analyse.results import CategoryRow, KernelRow
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import Attribution, source_of
from stepscope.analyse.trace.gpu_work import CATEGORIES
from stepscope.analyse.trace.grouping import Groups, group_by, heaviest_of
from stepscope.analyse.trace.nesting import NONE
from stepscope.analyse.trace.stages_and_steps import Marks
from stepscope.analyse.trace.transfers import operator_name
from stepscope.model.trace import I64, Trace
from stepscope.model.vocabulary import KernelCategory

WITH_COMMAND = 10
"""Kernels that get a ready ncu command: the heaviest ones are those of interest."""


def kernel_rows(found: Analysis) -> tuple[KernelRow, ...]:
    """All kernels by name, heaviest first. Durations are clipped; shares are of GPU busy time."""
    trace, work, attribution, busy_ns = found.trace, found.work, found.attribution, found.busy_ns
    count = work.kernel_count
    if not count:
        return ()
    kernels, spent = trace.kernels, found.duration_ns[:count]
    groups = group_by((kernels.name,))
    totals = groups.total(spent)
    typical = heaviest_of(groups, _shape_keys(trace), np.ones(count, np.int64))
    sourced = heaviest_of(groups, attribution.source[:count].astype(np.int64), spent + 1)
    operated = heaviest_of(groups, _operator_names(trace, attribution, count), spent + 1)
    stages = stages_of(found.marks, attribution, groups, count)
    rows = []
    for position, index in enumerate(np.argsort(-totals, kind="stable")):
        row, source_row = int(typical[index]), int(sourced[index])
        name = trace.names[int(kernels.name[row])]
        rows.append(
            KernelRow(
                name=name,
                category=CATEGORIES[int(work.category[row])].value,
                count=int(groups.count[index]),
                total_ms=float(totals[index]) / 1e6,
                share=float(totals[index] / busy_ns) if busy_ns else 0.0,
                mean_us=float(totals[index] / groups.count[index]) / 1e3,
                source=source_of(trace, attribution, source_row),
                grid=_triple(kernels.grid, row),
                block=_triple(kernels.block, row),
                registers=_known(kernels.registers, row),
                shared_bytes=_known(kernels.shared_bytes, row),
                occupancy=_occupancy(trace, row),
                operator=operator_name(trace, int(attribution.operator[operated[index]])),
                stages=stages[index],
                ncu_command=ncu_command(name, launches=int(groups.count[index]))
                if position < WITH_COMMAND
                else None,
            )
        )
    return tuple(rows)


def category_rows(found: Analysis) -> tuple[CategoryRow, ...]:
    """Kernel time by category, and copies and fills as ``memory``; largest first, empty ones left out."""
    work, busy_ns = found.work, found.busy_ns
    memory = CATEGORIES.index(KernelCategory.MEMORY)
    category = np.where(work.category >= 0, work.category, memory)
    totals = np.bincount(category, weights=found.duration_ns, minlength=len(CATEGORIES))
    counts = np.bincount(category[: work.kernel_count], minlength=len(CATEGORIES))
    copies = np.bincount(category[work.kernel_count :], minlength=len(CATEGORIES))
    rows = [
        CategoryRow(
            name=CATEGORIES[index].value,
            total_ms=float(totals[index]) / 1e6,
            share=float(totals[index] / busy_ns) if busy_ns else 0.0,
            count=int(counts[index]),
            copy_count=int(copies[index]),
        )
        for index in range(len(CATEGORIES))
        if counts[index] or copies[index]
    ]
    return tuple(sorted(rows, key=lambda row: -row.total_ms))


def _shape_keys(trace: Trace) -> I64:
    """One number for the launch shape of each kernel: grid, block, registers, shared memory."""
    kernels = trace.kernels
    columns = [*kernels.grid.T, *kernels.block.T, kernels.registers, kernels.shared_bytes]
    key = np.zeros(len(kernels.start_ns), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            key = key * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64) + np.uint64(1)
    return key.view(np.int64)


def _operator_names(trace: Trace, attribution: Attribution, count: int) -> I64:
    operator = attribution.operator[:count]
    if not len(trace.operators.name):
        return operator
    return np.where(operator != NONE, trace.operators.name[np.maximum(operator, 0)], NONE).astype(np.int64)


def stages_of(marks: Marks, attribution: Attribution, groups: Groups, count: int) -> list[tuple[str, ...]]:
    """The names of the stages that launched each group, in the order of the run."""
    stage = attribution.stage[:count].astype(np.int64)
    pairs = group_by((groups.of, stage))
    names: list[dict[str, None]] = [{} for _ in range(len(groups))]
    for row in pairs.first[np.argsort(stage[pairs.first], kind="stable")]:
        if stage[row] != NONE:
            names[int(groups.of[row])][marks.stages[int(stage[row])].name] = None
    return [tuple(found) for found in names]


def _triple(column: np.ndarray[tuple[int, ...], np.dtype[np.int32]], row: int) -> tuple[int, int, int] | None:
    x, y, z = (int(value) for value in column[row])
    return None if x < 1 else (x, y, z)


def _known(column: np.ndarray[tuple[int, ...], np.dtype[np.int32]], row: int) -> int | None:
    value = int(column[row])
    return None if value < 0 else value


def _occupancy(trace: Trace, row: int) -> float | None:
    """What the launch can reach of the device's warps: computed, or as recorded where the device is unknown.

    Kineto's own figure is 0 for every kernel with more than 48 KiB of shared memory (it asks the calculator
    without the opt-in), so it goes second, and a 0 is no figure.
    """
    kernels = trace.kernels
    device = next((one for one in trace.devices if one.id == int(kernels.device[row])), None)
    grid, block = _triple(kernels.grid, row), _triple(kernels.block, row)
    computed = (
        device
        and grid
        and block
        and occupancy_on(
            device,
            grid_blocks=math.prod(grid),
            threads=math.prod(block),
            registers=int(kernels.registers[row]),
            shared_bytes=int(kernels.shared_bytes[row]),
        )
    )
    recorded = float(kernels.occupancy[row])
    return computed or (recorded if recorded > 0 else None)
