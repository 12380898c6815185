"""Findings: explained inefficiencies, each from one small rule.

A rule says what is slow, what that costs in milliseconds of this recording, where it is and what to do. Costs
are exposed time, never counts: removing a synchronisation or a copy that hides behind other work wins nothing
(diffusers #9475: sd15 7.398 s before, 7.396 s after removing its scheduler's synchronisations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepscope.analyse.findings.communication import exposed_communication, skew_findings
from stepscope.analyse.findings.copies import device_copies, offload_on_critical_path, pageable_copies
from stepscope.analyse.findings.host import (
    allocation_in_loop,
    host_bound_stages,
    slow_steps,
    synchronisation_in_loop,
)
from stepscope.analyse.findings.kernels import (
    fp32_in_decoder,
    kernel_gaps,
    layout_transposes,
    unbatched_guidance,
    unfused_elementwise,
)
from stepscope.analyse.findings.operators import python_bound, python_loops
from stepscope.analyse.findings.recording import memory_growth, odd_profiler_steps, recorded_step_count
from stepscope.analyse.results import Finding, RankReport
from stepscope.analyse.trace.analysis import Analysis

__all__ = ["FINDING_IDS", "RULES", "rank_findings", "skew_findings"]

Rule = Callable[[Analysis, RankReport], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    recorded_step_count,
    odd_profiler_steps,
    synchronisation_in_loop,
    host_bound_stages,
    python_loops,
    python_bound,
    allocation_in_loop,
    slow_steps,
    offload_on_critical_path,
    pageable_copies,
    device_copies,
    kernel_gaps,
    unfused_elementwise,
    layout_transposes,
    fp32_in_decoder,
    unbatched_guidance,
    exposed_communication,
    memory_growth,
)

FINDING_IDS = (
    "recording.step_count", "recording.profiler_step", "host.sync_in_loop", "host.launch_bound", "host.late",
    "host.python_loop", "host.python_bound", "host.allocation_in_loop", "steps.slow",
    "steps.unbatched_guidance", "copies.offload_exposed", "copies.pageable", "copies.device_to_device",
    "kernels.gaps", "kernels.unfused_chains", "kernels.layout_transposes", "kernels.fp32_decoder",
    "kernels.fp32_casts", "communication.exposed", "communication.straggler", "memory.grows",
)  # fmt: skip
"""Every id that a finding of a trace can have: what a gate may forbid."""


def rank_findings(found: Analysis, rank: RankReport) -> tuple[Finding, ...]:
    """All that the rules find in one trace, what costs most first; remarks on the recording come before all.

    None is left out here: a gate may forbid the cheapest.
    """
    findings = [finding for rule in RULES for finding in rule(found, rank)]
    return tuple(sorted(findings, key=_importance))


def _importance(finding: Finding) -> tuple[bool, bool, float]:
    about_recording = finding.id.startswith("recording.")
    return not about_recording, finding.severity != "warning", -(finding.cost_ms or 0.0)
