"""Whether a run keeps its budgets and rules, and is no slower than the last good runs of its cohort."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from stepscope.analyse.comparison.cohort import Observation, identifying_facts, observe
from stepscope.analyse.comparison.gate_results import Check, GateResult, Outcome
from stepscope.analyse.findings import skew_findings
from stepscope.analyse.results import RankReport, RunSummary
from stepscope.analyse.run.in_loop import IN_LOOP_IDS
from stepscope.analyse.run.run_findings import RUN_FINDING_IDS
from stepscope.model.budget import Baseline, Budget, Budgets, GateRules, HistoryEntry

SYNC_IN_LOOP = "host.sync_in_loop"
"""The report's finding that stands for a synchronisation inside the denoising loop."""

STRAGGLER = "communication.straggler"
"""The finding that only the traces of several ranks together can have."""

MEMORY_GROWS = "memory.grows"

_OF_THE_HOST = frozenset({"recording.step_count", "recording.profiler_step", "steps.slow", MEMORY_GROWS})
"""Findings that a trace without GPU events can have."""

_GIB = 1024**3


def gate(
    summary: RunSummary,
    budgets: Budgets,
    *,
    ranks: Sequence[RankReport] = (),
    history: Sequence[HistoryEntry] = (),
) -> GateResult:
    """Every check that ``budgets`` asks for; what cannot be measured has failed, with the reason.

    ``ranks`` are the reports of the run's trace, for rules about findings.
    """
    run = observe(summary)
    device = run.facts.get("device_name") or run.facts.get("device_kind", "")
    table, budget = budget_for(device, budgets)
    checks = [
        *_rule_checks(summary, budgets.rules, ranks),
        *(_budget_checks(summary, run, budget) if budget else [_no_budget(device)]),
    ]
    cohort = cohort_key(run.facts)
    if budgets.baseline is not None:
        checks.append(_baseline_check(run, budgets.baseline, cohort, history))
    return GateResult(
        path=summary.path or "",
        request_id=summary.request_id,
        device=device,
        budget=table,
        cohort=cohort,
        checks=tuple(checks),
    )


def budget_for(device: str, budgets: Budgets) -> tuple[str, Budget | None]:
    """The budget whose name is in the device's name as whole words, the longest first; else the default.

    Whole words, because an H20 is no H200 and an A10 no A100.
    """
    for name in sorted(budgets.gpu, key=len, reverse=True):
        if re.search(rf"(?<!\w){re.escape(name.strip())}(?!\w)", device, re.IGNORECASE):
            return name, budgets.gpu[name]
    return "default", budgets.default


def cohort_key(facts: Mapping[str, str]) -> str:
    """A short name for runs of the same work, on the same kind of GPU, measured the same way."""
    text = "\n".join(f"{key}={value}" for key, value in sorted(identifying_facts(facts).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def history_entry(
    summary: RunSummary, result: GateResult, *, timestamp: str = "", commit: str = ""
) -> HistoryEntry:
    """The run as a line of the history."""
    return HistoryEntry(
        cohort=result.cohort,
        request_id=summary.request_id,
        total_ms=summary.total_ms,
        good=result.passed,
        timestamp=timestamp,
        commit=commit,
        facts=identifying_facts(observe(summary).facts),
    )


def _rule_checks(summary: RunSummary, rules: GateRules, ranks: Sequence[RankReport]) -> Iterator[Check]:
    if rules.trusted:
        yield _rule("trusted numbers", summary.trust.ok, "; ".join(summary.trust.reasons))
    if rules.complete:
        yield _rule("complete run", summary.incomplete_reason is None, summary.incomplete_reason or "")
    forbidden = ([SYNC_IN_LOOP] if rules.no_sync_in_loop else []) + list(rules.forbid_findings)
    for finding_id in dict.fromkeys(forbidden):
        if finding_id in RUN_FINDING_IDS:
            yield _run_finding_check(finding_id, summary)
        else:
            yield _finding_check(finding_id, ranks)


def _run_finding_check(finding_id: str, summary: RunSummary) -> Check:
    """Whether the run has the finding, which takes no trace but a dump that tells what it rests on."""
    found = [finding for finding in summary.findings if finding.id == finding_id]
    said = [f"{finding.title}: {finding.evidence}" for finding in found]
    if finding_id in IN_LOOP_IDS:
        known, missing = summary.producer == "stepscope", "the order of stages"
    else:
        known = any(key.startswith("component_dtypes.") for key, _ in summary.workload)
        missing = "the dtypes of components"
    said += [] if known else [f"not measured: the dump does not tell {missing}"]
    return _rule(f"no {finding_id}", not said, "; ".join(said))


def _finding_check(finding_id: str, ranks: Sequence[RankReport]) -> Check:
    """Whether the finding is in no trace; one that cannot have it, whatever was run, proves nothing."""
    name = "no synchronisation in the loop" if finding_id == SYNC_IN_LOOP else f"no {finding_id}"
    if not ranks:
        return _rule(name, False, "not measured: give the run's trace with --trace")
    seen = skew_findings(ranks) if finding_id == STRAGGLER else ranks
    found = [finding for rank in seen for finding in rank.findings if finding.id == finding_id]
    if found:
        return _rule(name, False, "; ".join(f"{finding.title}: {finding.evidence}" for finding in found))
    reason = _unanswered(finding_id, ranks)
    return _rule(name, not reason, f"not measured: {reason}")


def _unanswered(finding_id: str, ranks: Sequence[RankReport]) -> str:
    """Why the traces cannot tell whether there is such a finding; empty where they can."""
    for rank in ranks:
        trace = f"the trace of rank {rank.rank}" if len(ranks) > 1 else "the trace"
        if rank.gpu is None and finding_id not in _OF_THE_HOST:
            return f"{trace} has no GPU events"
        if not rank.steps and (finding_id.endswith("_in_loop") or finding_id.startswith("steps.")):
            return f"no denoising step was recognised in {trace}"
        if not rank.memory and finding_id == MEMORY_GROWS:
            return f"{trace} has no record of allocated memory"
    if finding_id == STRAGGLER and len(ranks) < 2:
        return "it takes the traces of two ranks or more"
    return ""


def _budget_checks(summary: RunSummary, run: Observation, budget: Budget) -> Iterator[Check]:
    statistics = summary.step_statistics
    if budget.total_ms is not None:
        yield _limit("total", "ms", budget.total_ms, run.total_ms)
    if budget.step_ms is not None:
        middle = statistics.median_ms if statistics else 0.0
        yield _limit("median step", "ms", budget.step_ms, middle or None)
    if budget.slowest_step_ms is not None:
        slowest = max(run.steps.values(), default=None)
        yield _limit("slowest step", "ms", budget.slowest_step_ms, slowest)
    for name, limit in budget.stages.items():
        yield _limit(f"stage {name}", "ms", limit, run.stages.get(name))
    if budget.peak_memory_gib is not None:
        peak = summary.peak_memory_bytes
        yield _limit("peak memory", "bytes", budget.peak_memory_gib * _GIB, peak)


def _baseline_check(
    run: Observation, baseline: Baseline, cohort: str, history: Sequence[HistoryEntry]
) -> Check:
    """The total against the median of the last good runs of the cohort."""
    mine = (entry for entry in history if entry.good and entry.cohort == cohort and entry.total_ms > 0)
    once = {(entry.request_id, entry.timestamp, entry.total_ms): entry.total_ms for entry in mine}
    good = list(once.values())[-baseline.last :]  # a job tried again records the same run again
    if len(good) < baseline.at_least:
        return Check(
            name="rolling baseline",
            unit="ms",
            limit=None,
            measured=run.total_ms,
            outcome=Outcome.SKIPPED,
            detail=f"{len(good)} of {baseline.at_least} good runs of cohort {cohort} so far",
        )
    usual = median(good)
    limit = usual * (1 + baseline.allow_percent / 100)
    check = _limit("rolling baseline", "ms", limit, run.total_ms)
    detail = f"median of the last {len(good)} good runs {usual:.1f} ms, {baseline.allow_percent:g} % allowed"
    return Check(
        name=check.name,
        unit=check.unit,
        limit=check.limit,
        measured=check.measured,
        outcome=check.outcome,
        detail=detail,
    )


def _limit(name: str, unit: str, limit: float, measured: float | None) -> Check:
    if measured is None or not measured >= 0:
        return Check(
            name=name, unit=unit, limit=limit, measured=None, outcome=Outcome.FAILED, detail="not measured"
        )
    return Check(
        name=name,
        unit=unit,
        limit=limit,
        measured=measured,
        outcome=Outcome.PASSED if measured <= limit else Outcome.FAILED,
        detail="" if measured <= limit else f"{100 * (measured / limit - 1):.1f} % over",
    )


def _rule(name: str, kept: bool, detail: str) -> Check:
    return Check(
        name=name,
        unit="",
        limit=None,
        measured=None,
        outcome=Outcome.PASSED if kept else Outcome.FAILED,
        detail="" if kept else detail,
    )


def _no_budget(device: str) -> Check:
    detail = f"none for {device or 'a run without a device name'}; an empty [default] asks for none"
    return _rule("a budget for this device", False, detail)
