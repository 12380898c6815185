"""What every view of a bench shows beside its comparison: the runs in their order, and the drift."""

from __future__ import annotations

from stepscope.analyse.comparison.bench_results import BenchReport, BenchRun
from stepscope.render import units
from stepscope.render.tables import Column, Kind, Table, build


def runs_table(report: BenchReport) -> Table:
    """Every run in the order in which they were made, with the GPU's state."""
    columns = [
        Column(key="order", title="run", kind=Kind.INDEX),
        Column(key="variant", title="variant", kind=Kind.CODE),
        Column(key="total_ms", title="end to end ms", kind=Kind.MS),
        Column(key="sm_mhz", title="SM MHz", kind=Kind.NUMBER),
        Column(key="temperature_c", title="°C at most", kind=Kind.NUMBER),
        Column(key="power_w", title="W", kind=Kind.NUMBER),
        Column(key="throttled", title="held back by"),
    ]
    return build("runs", "Runs in their order", columns, [_cells(run) for run in report.runs])


def drift_sentence(report: BenchReport) -> str:
    """What the drift check said."""
    drift = report.drift
    if drift is None:
        return "Drift was not checked: that takes six runs."
    found = "drift" if drift.found else "no drift"
    return (
        f"Drift check: {found} ({units.signed_share(drift.change)} from first to last run, "
        f"{units.probability(drift.p_value)})."
    )


def _cells(run: BenchRun) -> tuple[int | str | float | None, ...]:
    gpu = run.gpu
    if gpu is None:
        return (run.order, run.variant, run.total_ms, None, None, None, "")
    held = ", ".join(f"{reason} {units.share(part)}" for reason, part in gpu.throttled)
    return (run.order, run.variant, run.total_ms, gpu.sm_mhz, gpu.temperature_c, gpu.power_w, held)
