"""Rules about several GPUs: waiting in collectives, and who is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stepscope.analyse.findings.thresholds import percent, traced_ns, worth_telling
from stepscope.analyse.results import Finding, GpuSummary, RankReport
from stepscope.analyse.trace.analysis import Analysis

EXPOSED = "communication.exposed"

SKEW_FROM = 0.05
"""Share of the span by which ranks' exposed communication must differ to name a straggler."""


def exposed_communication(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Collectives that no computation hides."""
    gpu = rank.gpu
    if gpu is None or not worth_telling(found, gpu.exposed_communication_ms * 1e6):
        return
    yield Finding(
        id=EXPOSED,
        title="Communication is exposed",
        evidence=(
            f"{gpu.exposed_communication_ms:.1f} of {gpu.communication_ms:.1f} ms in collectives run with no "
            "computation beside them, "
            f"{percent(gpu.exposed_communication_ms * 1e6, traced_ns(found))} of the traced time; "
            "waiting for a late rank counts as communication here"
        ),
        cost_ms=gpu.exposed_communication_ms / max(gpu.device_count, 1),
        source=None,
        remedy="See which rank is late (report all ranks together); then overlap collectives with "
        "computation, or use fewer and larger ones.",
    )


def skew_findings(ranks: Sequence[RankReport]) -> tuple[RankReport, ...]:
    """The ranks, the straggler of each request with a finding: the others wait for it inside collectives.

    Their exposed communication is then no finding of its own: it is the straggler's lateness.
    """
    result = list(ranks)
    for request in {rank.request_id for rank in ranks} - {None}:
        group = [index for index, rank in enumerate(ranks) if rank.request_id == request]
        found = _straggler([ranks[index] for index in group])
        if found is None:
            continue
        late, finding = found
        for position, index in enumerate(group):
            kept = tuple(one for one in ranks[index].findings if one.id != EXPOSED)
            added = (finding,) if position == late else ()
            result[index] = replace(ranks[index], findings=(*added, *kept))
    return tuple(result)


def _straggler(ranks: Sequence[RankReport]) -> tuple[int, Finding] | None:
    """The rank that waits least in collectives while its own GPU idles: the others wait for it."""
    gpus = [rank.gpu for rank in ranks]
    known = [gpu for gpu in gpus if gpu is not None and gpu.communication_ms > 0]
    if len(known) < 2 or len(known) != len(ranks):
        return None
    waits = [gpu.exposed_communication_ms for gpu in known]
    late, waiting = (
        min(range(len(known)), key=waits.__getitem__),
        max(range(len(known)), key=waits.__getitem__),
    )
    cost_ms = waits[waiting] - waits[late]
    if cost_ms < SKEW_FROM * known[waiting].span_ms:
        return None
    return late, Finding(
        id="communication.straggler",
        title=f"Rank {ranks[late].rank} is late: the other ranks wait for it",
        evidence=(
            f"rank {ranks[waiting].rank} spends {waits[waiting]:.1f} ms in exposed collectives, rank "
            f"{ranks[late].rank} only {waits[late]:.1f} ms; {_why_late(known[late])}"
        ),
        cost_ms=cost_ms,
        source=None,
        remedy=f"Look at rank {ranks[late].rank}: its host, its CPU cores (pinning, other load) and its "
        "share of the work; the collectives themselves are not the problem.",
    )


def _why_late(gpu: GpuSummary) -> str:
    host_ms = sum(one.total_ms for one in gpu.idle_causes if one.cause != "start_end")
    if host_ms >= 0.1 * gpu.span_ms:
        return f"its GPU idles {host_ms:.1f} ms waiting for its own host"
    return "its GPU is busy: it has more work or is slower"
