"""Rules about copies on the critical path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepscope.analyse.findings.thresholds import percent, traced_ns, worth_telling
from stepscope.analyse.results import Finding, RankReport, Source, TransferRow
from stepscope.analyse.trace.analysis import Analysis
from stepscope.model.vocabulary import CopyKind

WEIGHTS_FROM_BYTES = 256 * 1024**2
"""More than this between host and device is weights moving (offloading), not inputs and outputs."""


def offload_on_critical_path(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Weights moved between host and device while the GPU has nothing else to do."""
    if not _moves_weights(rank):
        return
    rows = [row for row in rank.transfers if row.kind in _BETWEEN]
    cost_ms = _exposed_ms(rank, rows)
    if not worth_telling(found, cost_ms * 1e6):
        return
    size = sum(row.bytes for row in rows)
    total_ms = sum(row.total_ms for row in rows)
    pageable = sum(row.bytes for row in rows if row.pinned is False)
    yield Finding(
        id="copies.offload_exposed",
        title="Offloading is on the critical path",
        evidence=(
            f"{size / 1024**3:.1f} GiB moved at {size / max(total_ms, 1e-9) / 1e6:.1f} GB/s, "
            f"{percent(pageable, size)} from or to pageable memory; {cost_ms:,.1f} ms of it "
            f"({percent(cost_ms * 1e6, traced_ns(found))} of the traced time) with the GPU doing nothing else"
        ),
        cost_ms=cost_ms,
        source=_heaviest_source(rows),
        remedy=(
            "Keep the component on the GPU if it fits; otherwise prefetch on a stream of its own from pinned "
            "memory (enable_group_offload(use_stream=True), pin_memory)."
        ),
    )


def pageable_copies(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Small copies from or to pageable memory that the GPU waits for: they make the host wait as well."""
    if _moves_weights(rank):
        return
    rows = [row for row in rank.transfers if row.kind in _BETWEEN and row.pinned is False]
    cost_ms = _exposed_ms(rank, rows)
    if rows and worth_telling(found, cost_ms * 1e6):
        yield Finding(
            id="copies.pageable",
            title="Copies of pageable memory on the critical path",
            evidence=(
                f"{sum(row.count for row in rows)} copies, "
                f"{sum(row.bytes for row in rows) / 1024**2:.1f} MiB, "
                f"{cost_ms:.1f} ms with the GPU doing nothing else"
            ),
            cost_ms=cost_ms,
            source=_heaviest_source(rows),
            remedy="Create the tensor on the device, or copy from pinned memory with non_blocking=True.",
        )


def device_copies(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Copies within the device that nothing hides: concatenation, clones, switching between experts."""
    rows = [row for row in rank.transfers if row.kind == CopyKind.DEVICE_TO_DEVICE.value]
    cost_ms = _exposed_ms(rank, rows)
    if rows and worth_telling(found, cost_ms * 1e6):
        yield Finding(
            id="copies.device_to_device",
            title="Copies within the device",
            evidence=(
                f"{sum(row.count for row in rows):,} copies, "
                f"{sum(row.bytes for row in rows) / 1024**3:.1f} GiB, {cost_ms:.1f} ms exposed"
            ),
            cost_ms=cost_ms,
            source=_heaviest_source(rows),
            remedy="Keep both networks resident, and avoid clone(), cat() and contiguous() in the loop.",
        )


_BETWEEN = (CopyKind.HOST_TO_DEVICE.value, CopyKind.DEVICE_TO_HOST.value)


def _moves_weights(rank: RankReport) -> bool:
    to_device = [row for row in rank.transfers if row.kind == CopyKind.HOST_TO_DEVICE.value]
    return sum(row.bytes for row in to_device) >= WEIGHTS_FROM_BYTES


def _exposed_ms(rank: RankReport, rows: Sequence[TransferRow]) -> float:
    """Copies side by side expose the same moments: together never more than the GPU's exposed copying."""
    gpu = rank.gpu
    if gpu is None:
        return 0.0
    return min(sum(row.exposed_ms for row in rows), gpu.exposed_copy_ms) / max(gpu.device_count, 1)


def _heaviest_source(rows: Sequence[TransferRow]) -> Source | None:
    sourced = [row for row in rows if row.source is not None]
    return max(sourced, key=lambda row: row.exposed_ms).source if sourced else None
