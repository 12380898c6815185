"""The tables over the whole report: runs and GPUs side by side."""

from __future__ import annotations

from stepscope.analyse.results import Report
from stepscope.render.report.rank_names import numbers_suffice, rank_name
from stepscope.render.report.run_names import run_label, run_name
from stepscope.render.tables import Column, Kind, Table, build

_RUNS = (
    Column(key="call", title="call"),
    Column(key="run", title="run"),
    Column(key="rank", title="rank", kind=Kind.INDEX),
    Column(key="trusted", title="trusted", kind=Kind.FLAG),
    Column(key="total_ms", title="total ms", kind=Kind.MS),
    Column(key="dominant_stage", title="dominant stage"),
    Column(key="step_count", title="steps", kind=Kind.COUNT),
    Column(key="step_median_ms", title="median step ms", kind=Kind.MS),
    Column(key="slowest_ratio", title="slowest step", kind=Kind.RATIO),
    Column(key="unaccounted_ms", title="unaccounted ms", kind=Kind.MS),
    Column(key="inferred_ms", title="inferred ms", kind=Kind.MS),
    Column(key="coverage", title="coverage", kind=Kind.SHARE),
    Column(key="profiler_pause_ms", title="profiler pause ms", kind=Kind.MS),
    Column(key="peak_memory_bytes", title="peak memory", kind=Kind.BYTES),
    Column(key="incomplete_reason", title="incomplete because"),
)
_GPUS = (
    Column(key="rank", title="rank", kind=Kind.INDEX),
    Column(key="trace", title="trace"),
    Column(key="name", title="GPU"),
    Column(key="device_count", title="devices", kind=Kind.COUNT),
    Column(key="span_ms", title="span ms", kind=Kind.MS),
    Column(key="busy_ratio", title="busy", kind=Kind.SHARE),
    Column(key="busy_ms", title="busy ms", kind=Kind.MS),
    Column(key="idle_ms", title="idle ms", kind=Kind.MS),
    Column(key="compute_ms", title="compute ms", kind=Kind.MS),
    Column(key="communication_ms", title="communication ms", kind=Kind.MS),
    Column(key="exposed_communication_ms", title="exposed comm. ms", kind=Kind.MS),
    Column(key="copy_ms", title="copy ms", kind=Kind.MS),
    Column(key="exposed_copy_ms", title="exposed copy ms", kind=Kind.MS),
    Column(key="kernel_count", title="kernels", kind=Kind.COUNT),
    Column(key="launch_count", title="launches", kind=Kind.COUNT),
    Column(key="launch_latency_median_us", title="launch latency µs", kind=Kind.US),
    Column(key="kernels_without_launch", title="kernels without launch", kind=Kind.COUNT),
    Column(key="launches_without_kernel", title="launches without kernel", kind=Kind.COUNT),
)


def runs_table(report: Report) -> Table:
    """One row a run."""
    rows = []
    for run in report.runs:
        steps = run.step_statistics
        rows.append(
            (
                label if (label := run_label(run, report.runs)) != run_name(run) else None,
                run_name(run),
                run.rank,
                run.trust.ok,
                run.total_ms,
                run.dominant_stage,
                steps.count if steps else None,
                steps.median_ms if steps else None,
                steps.slowest_ratio if steps else None,
                run.unaccounted_ms,
                run.inferred_ms,
                run.coverage,
                run.profiler_pause_ms,
                run.peak_memory_bytes,
                run.incomplete_reason,
            )
        )
    return build("runs", "Runs", _RUNS, rows)


def gpus_table(report: Report) -> Table:
    """One row a rank that has GPU work."""
    rows = (
        (
            rank.rank,
            "" if numbers_suffice(report.ranks) else rank_name(rank, report.ranks),
            gpu.name,
            gpu.device_count,
            gpu.span_ms,
            gpu.busy_ratio,
            gpu.busy_ms,
            gpu.idle_ms,
            gpu.compute_ms,
            gpu.communication_ms,
            gpu.exposed_communication_ms,
            gpu.copy_ms,
            gpu.exposed_copy_ms,
            gpu.kernel_count,
            gpu.launch_count,
            gpu.launch_latency_median_us,
            gpu.kernels_without_launch,
            gpu.launches_without_kernel,
        )
        for rank in report.ranks
        if (gpu := rank.gpu)
    )
    return build("gpus", "GPUs", _GPUS, rows)
