"""All findings that a run's own times give; no trace is needed for them."""

from __future__ import annotations

from stepscope.analyse.results import Finding
from stepscope.analyse.run.in_loop import IN_LOOP_IDS, work_between_steps
from stepscope.analyse.run.precision import FLOAT32_IDS, float32_components
from stepscope.model.dump import PerfDump

RUN_FINDING_IDS = (*FLOAT32_IDS, *IN_LOOP_IDS)
"""Every id that a finding of a run can have: what a gate may forbid."""


def run_findings(dump: PerfDump) -> tuple[Finding, ...]:
    """What is worth telling of one run."""
    return (*float32_components(dump), *work_between_steps(dump))
