"""The tables of one rank, from its trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from stepscope.analyse.results import Finding, RankReport
from stepscope.model.vocabulary import BoundBy
from stepscope.render.report.run_tables import with_times
from stepscope.render.report.stage_sums import summed_rows
from stepscope.render.tables import Column, Kind, Table, build

_STAGES = (
    Column(key="stage_index", title="#", kind=Kind.INDEX),
    Column(key="name", title="stage"),
    Column(key="start_ms", title="start ms", kind=Kind.MS),
    Column(key="duration_ms", title="ms", kind=Kind.MS),
    Column(key="share", title="share", kind=Kind.SHARE),
    Column(key="gpu_busy_ms", title="busy ms", kind=Kind.MS),
    Column(key="idle_ms", title="idle ms", kind=Kind.MS),
    Column(key="bound_by", title="bound by"),
    Column(key="kernel_count", title="kernels", kind=Kind.COUNT),
    Column(key="launch_count", title="launches", kind=Kind.COUNT),
    Column(key="tflop", title="TFLOP", kind=Kind.NUMBER),
    Column(key="tflop_per_s", title="TFLOP/s", kind=Kind.NUMBER),
    Column(key="peak_share", title="of peak", kind=Kind.SHARE),
    Column(key="peak_memory_bytes", title="memory", kind=Kind.BYTES),
    Column(key="inferred", title="inferred", kind=Kind.MARK),
)
_STEPS = (
    Column(key="index", title="step", kind=Kind.INDEX),
    Column(key="stage_index", title="stage", kind=Kind.INDEX),
    Column(key="start_ms", title="start ms", kind=Kind.MS),
    Column(key="duration_ms", title="ms", kind=Kind.MS),
    Column(key="transfer_ms", title="of it transfers", kind=Kind.MS),
    Column(key="gpu_busy_ms", title="busy ms", kind=Kind.MS),
    Column(key="kernel_count", title="kernels", kind=Kind.COUNT),
    Column(key="forwards", title="forwards", kind=Kind.COUNT),
    Column(key="inferred", title="inferred", kind=Kind.MARK),
    Column(key="outlier", title="what differs"),
)
_CATEGORIES = (
    Column(key="name", title="category"),
    Column(key="total_ms", title="ms", kind=Kind.MS),
    Column(key="share", title="share", kind=Kind.SHARE),
    Column(key="count", title="kernels", kind=Kind.COUNT),
    Column(key="copy_count", title="copies, fills", kind=Kind.COUNT),
)
_KERNELS = (
    Column(key="name", title="kernel", kind=Kind.CODE),
    Column(key="category", title="category"),
    Column(key="total_ms", title="ms", kind=Kind.MS),
    Column(key="share", title="share", kind=Kind.SHARE),
    Column(key="count", title="count", kind=Kind.COUNT),
    Column(key="mean_us", title="mean µs", kind=Kind.US),
    Column(key="source", title="source", kind=Kind.SOURCE),
    Column(key="operator", title="operator", kind=Kind.CODE),
    Column(key="stages", title="stages"),
    Column(key="grid", title="grid", kind=Kind.DIMENSIONS),
    Column(key="block", title="block", kind=Kind.DIMENSIONS),
    Column(key="registers", title="registers", kind=Kind.COUNT),
    Column(key="shared_bytes", title="shared memory", kind=Kind.BYTES),
    Column(key="occupancy", title="occupancy", kind=Kind.SHARE),
)
_TRANSFERS = (
    Column(key="kind", title="copy"),
    Column(key="pinned", title="pinned", kind=Kind.FLAG),
    Column(key="bytes", title="size", kind=Kind.BYTES),
    Column(key="count", title="count", kind=Kind.COUNT),
    Column(key="total_ms", title="ms", kind=Kind.MS),
    Column(key="gb_per_s", title="GB/s", kind=Kind.NUMBER),
    Column(key="exposed_ms", title="exposed ms", kind=Kind.MS),
    Column(key="stage", title="stage"),
    Column(key="operator", title="operator", kind=Kind.CODE),
    Column(key="source", title="asked by", kind=Kind.SOURCE),
)
_IDLE = (
    Column(key="cause", title="GPU idle because"),
    Column(key="total_ms", title="ms", kind=Kind.MS),
    Column(key="share", title="of the GPU span", kind=Kind.SHARE),
)
_FINDINGS = (
    Column(key="id", title="id"),
    Column(key="severity", title="severity"),
    Column(key="title", title="finding"),
    Column(key="cost_ms", title="costs ms", kind=Kind.MS),
    Column(key="evidence", title="evidence"),
    Column(key="remedy", title="remedy"),
    Column(key="source", title="source", kind=Kind.SOURCE),
)
_ANNOTATIONS = (
    Column(key="name", title="range", kind=Kind.CODE),
    Column(key="count", title="count", kind=Kind.COUNT),
    Column(key="host_ms", title="host ms", kind=Kind.MS),
    Column(key="kernel_count", title="kernels", kind=Kind.COUNT),
    Column(key="gpu_busy_ms", title="busy ms", kind=Kind.MS),
)
_BUSY = (
    Column(key="at_ms", title="at ms", kind=Kind.MS),
    Column(key="busy_ratio", title="GPU busy", kind=Kind.SHARE),
)
_MEMORY = (
    Column(key="at_ms", title="at ms", kind=Kind.MS),
    Column(key="allocated_bytes", title="allocated", kind=Kind.BYTES),
)
IDLE_WORDS = {
    "host_late": "the host launched late",
    "synchronising": "the host waited in a synchronising call",
    "allocation": "memory was being allocated",
    "start_end": "between kernels queued in time",
}
"""Idle causes in words; an unknown cause is shown as it is."""


_Number = TypeVar("_Number", int, float)


def _of_gpu(rank: RankReport, value: _Number) -> _Number | None:
    """A number about the GPU; not known where the trace has no GPU events."""
    return value if rank.gpu is not None else None


def _told(bound_by: str) -> str | None:
    """What a stage waits for; nothing where there is no GPU time to tell it from."""
    return None if bound_by == BoundBy.UNKNOWN else bound_by


def rank_stages(rank: RankReport) -> Table:
    """Stages as the trace shows them."""
    rows = (
        (
            stage.stage_index,
            stage.name,
            stage.start_ms,
            stage.duration_ms,
            stage.share,
            _of_gpu(rank, stage.gpu_busy_ms),
            _of_gpu(rank, stage.idle_ms),
            _told(stage.bound_by),
            _of_gpu(rank, stage.kernel_count),
            stage.launch_count or None,
            stage.tflop,
            stage.tflop_per_s,
            stage.peak_share,
            stage.peak_memory_bytes,
            stage.inferred,
        )
        for stage in rank.stages
    )
    return build("stages", "Stages in the trace", _STAGES, rows)


def rank_stages_by_name(rank: RankReport) -> Table:
    """The stages as people read them: a name that occurs often has one row, with how many times."""
    shown = summed_rows(rank.stages)
    table = rank_stages(replace(rank, stages=tuple(row.stage for row in shown)))
    return with_times(table, [row.times for row in shown])


def rank_steps(rank: RankReport) -> Table:
    """Denoising steps as the trace shows them."""
    rows = (
        (
            step.index,
            step.stage_index,
            step.start_ms,
            step.duration_ms,
            step.transfer_ms,
            _of_gpu(rank, step.gpu_busy_ms),
            _of_gpu(rank, step.kernel_count),
            step.forwards or None,
            step.inferred,
            step.outlier,
        )
        for step in rank.steps
    )
    return build("steps", "Denoising steps in the trace", _STEPS, rows)


def rank_categories(rank: RankReport) -> Table:
    """GPU time by what kernels do."""
    copies = any(row.copy_count for row in rank.categories)  # else there is no column of them
    rows = (
        (row.name, row.total_ms, row.share, row.count, row.copy_count if copies else None)
        for row in rank.categories
    )
    return build("categories", "GPU time by kernel category", _CATEGORIES, rows)


def rank_kernels(rank: RankReport) -> Table:
    """Every kernel, all its launches together."""
    rows = (
        (
            row.name,
            row.category,
            row.total_ms,
            row.share,
            row.count,
            row.mean_us,
            row.source,
            row.operator,
            ", ".join(row.stages),
            row.grid,
            row.block,
            row.registers,
            row.shared_bytes,
            row.occupancy,
        )
        for row in rank.kernels
    )
    return build("kernels", "Kernels", _KERNELS, rows)


def rank_transfers(rank: RankReport) -> Table:
    """The ledger of copies."""
    rows = (
        (
            row.kind,
            row.pinned,
            row.bytes,
            row.count,
            row.total_ms,
            row.gb_per_s,
            row.exposed_ms,
            row.stage,
            row.operator,
            row.source,
        )
        for row in rank.transfers
    )
    return build("transfers", "Transfers", _TRANSFERS, rows)


def rank_idle(rank: RankReport) -> Table:
    """GPU idle time by cause."""
    causes = rank.gpu.idle_causes if rank.gpu else ()
    rows = ((IDLE_WORDS.get(row.cause, row.cause), row.total_ms, row.share) for row in causes)
    return build("idle", "Why the GPU was idle", _IDLE, rows)


def rank_annotations(rank: RankReport) -> Table:
    """Named ranges that the recorder was given."""
    rows = (
        (
            row.name,
            row.count,
            row.host_ms,
            _of_gpu(rank, row.kernel_count),
            _of_gpu(rank, row.gpu_busy_ms),
        )
        for row in rank.annotations
    )
    return build("annotations", "Recorded ranges", _ANNOTATIONS, rows)


def findings_table(findings: Sequence[Finding]) -> Table:
    """Findings with evidence and remedy."""
    rows = (
        (
            finding.id,
            finding.severity,
            finding.title,
            finding.cost_ms,
            finding.evidence,
            finding.remedy,
            finding.source,
        )
        for finding in findings
    )
    return build("findings", "Findings", _FINDINGS, rows)


def rank_busy(rank: RankReport) -> Table:
    """GPU busy share over time."""
    return build(
        "busy",
        "GPU busy over time",
        _BUSY,
        ((point.at_ms, point.busy_ratio) for point in rank.busy_over_time),
    )


def rank_memory(rank: RankReport) -> Table:
    """Allocated device memory over time."""
    return build(
        "memory",
        "Allocated memory over time",
        _MEMORY,
        ((point.at_ms, point.allocated_bytes) for point in rank.memory),
    )
