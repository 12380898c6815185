"""The report: one ``RankReport`` per trace, put together with the runs of perf dumps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from stepscope.analyse.findings import rank_findings, skew_findings
from stepscope.analyse.kernels.engaged import engaged
from stepscope.analyse.results import (
    REPORT_SCHEMA_VERSION,
    RankReport,
    Report,
    RunSummary,
    StageRow,
    Trust,
)
from stepscope.analyse.run.dump_against_trace import disagreements
from stepscope.analyse.run.precision import RUN_FINDING_IDS
from stepscope.analyse.trace.analysis import Analysis, analyse
from stepscope.analyse.trace.annotation_table import annotation_rows
from stepscope.analyse.trace.kernel_table import category_rows, kernel_rows
from stepscope.analyse.trace.memory import memory_points, memory_samples
from stepscope.analyse.trace.nesting import NONE
from stepscope.analyse.trace.recorded import left_out, recorded_window
from stepscope.analyse.trace.stage_flops import above_peak, stage_flops, with_flops
from stepscope.analyse.trace.stage_view import busy_points, gpu_summary, stage_rows
from stepscope.analyse.trace.step_view import forward_rows, step_rows
from stepscope.analyse.trace.trace_trust import incomplete_reasons, trust_reasons, warning_text
from stepscope.analyse.trace.transfers import transfer_rows
from stepscope.model.trace import Trace

DECODER_IN_FLOAT32, VAE_IN_FLOAT32 = "kernels.fp32_decoder", RUN_FINDING_IDS[0]
_REQUEST = re.compile(r"^(?P<id>.+?)(?:[-_](?:-?\d+_steps|full_stages))?(?:[-_]global)?[-_]rank[-_]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedTrace:
    """What is said of one trace: the report of its rank, and what stands at the head of the whole report."""

    rank: RankReport
    untrusted: tuple[str, ...]
    warnings: tuple[str, ...]
    incomplete: tuple[str, ...] = ()  # why part of the recording is missing
    has_host_events: bool = True


def analyse_trace(trace: Trace) -> AnalysedTrace:
    """Everything that is said of one trace."""
    found = analyse(trace)
    stages = stage_rows(found)
    flops = stage_flops(found, stages)
    stages = with_flops(stages, flops)
    steps, statistics = step_rows(found)
    rank = RankReport(
        rank=trace.rank or 0,
        path=trace.path,
        request_id=_said(trace, "request_id") or request_id(trace.path),
        source=trace.source.value,
        event_count=trace.event_count,
        gpu=gpu_summary(found),
        stages=stages,
        steps=steps,
        categories=category_rows(found),
        transfers=transfer_rows(found),
        kernels=kernel_rows(found),
        engaged=engaged(trace, found.busy_ns),
        attributed_share=_attributed_share(found),
        outside_kernel_count=int(
            np.count_nonzero(found.attribution.stage[: found.work.kernel_count] == NONE)
        ),
        step_statistics=statistics,
        dominant_stage=_dominant(stages),
        forwards=forward_rows(found),
        annotations=annotation_rows(trace, found.work),
        memory=memory_points(*memory_samples(trace), found.origin_ns),
        busy_over_time=busy_points(found),
    )
    return AnalysedTrace(
        rank=replace(rank, findings=rank_findings(found, rank)),
        untrusted=(*trust_reasons(trace, found.work, found.linking), *above_peak(stages, flops)),
        warnings=_warnings(found),
        incomplete=incomplete_reasons(trace, found.work),
        has_host_events=len(trace.operators.start_ns) + len(trace.annotations.start_ns) > 0,
    )


def assemble(
    sources: Sequence[str],
    runs: Sequence[RunSummary],
    traces: Sequence[AnalysedTrace],
    warnings: Sequence[str] = (),
) -> Report:
    """The whole report. It may be trusted if every run and every trace may."""
    ordered = sorted(traces, key=lambda one: (one.rank.request_id or "", one.rank.rank, one.rank.path))
    several = len(runs) + len(ordered) > 1
    reasons = [
        f"{_name(run)}: {reason}" if several else reason for run in runs for reason in run.trust.reasons
    ]
    reasons += [_of_rank(one.rank, reason, several) for one in ordered for reason in one.untrusted]
    reasons += disagreements(runs, [one.rank for one in ordered])
    remarks = [_of_rank(one.rank, remark, several) for one in ordered for remark in one.warnings]
    trusted = not reasons and all(run.trust.ok for run in runs)
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        source=tuple(sources),
        trust=Trust(ok=trusted, reasons=tuple(reasons)),
        warnings=(*warnings, *remarks),
        runs=tuple(_without_seen(run, ordered) for run in runs),
        ranks=skew_findings([one.rank for one in ordered]),
    )


def _without_seen(run: RunSummary, traces: Sequence[AnalysedTrace]) -> RunSummary:
    """The run without what a trace shows kernel by kernel."""
    if not any(finding.id == DECODER_IN_FLOAT32 for one in traces for finding in one.rank.findings):
        return run
    return replace(run, findings=tuple(one for one in run.findings if one.id != VAE_IN_FLOAT32))


def request_id(path: str) -> str | None:
    """The request id in a trace's file name; None where the name has another form."""
    found = _REQUEST.match(PurePath(path).name)
    return found["id"] if found else None


def _name(run: RunSummary) -> str:
    """What tells a run from others: its file, or its request where it was measured here."""
    return run.path or run.request_id or "run"


def _said(trace: Trace, key: str) -> str | None:
    """What stepscope wrote into the trace's header when it recorded it; None in other recorders' traces."""
    header = trace.metadata.get("stepscope")
    value = header.get(key) if isinstance(header, dict) else None
    return value if isinstance(value, str) else None


def _of_rank(rank: RankReport, text: str, several: bool) -> str:
    return f"{PurePath(rank.path).name}: {text}" if several else text


def _attributed_share(found: Analysis) -> float | None:
    """The share of kernels with a source line; None where the recording has no sources to give."""
    if not found.work.kernel_count or not (found.trace.has_stacks or found.trace.sources):
        return None
    return float(np.mean(found.attribution.source[: found.work.kernel_count] != NONE))


def _dominant(stages: Sequence[StageRow]) -> str | None:
    """The stage, occurrences of a name summed, that takes most time."""
    totals: dict[str, float] = {}
    for stage in stages:
        totals[stage.name] = totals.get(stage.name, 0.0) + stage.duration_ms
    return max(totals, key=lambda name: totals[name]) if totals else None


def _warnings(found: Analysis) -> tuple[str, ...]:
    """What could not be measured or was mended, in words."""
    # Overlaps are counted here together with what was done about them.
    remarks = [warning_text(one) for one in found.trace.warnings if one.kind != "overlapping_slices"]
    if not len(found.work):
        remarks.append("No GPU events in the trace: all times are the host's.")
    before = found.linking.before_recording
    if before:
        remarks.append(
            f"{before:,} kernels were launched before the recording began; they belong to no stage or step."
        )
    if found.clipped_count:
        remarks.append(
            f"{found.clipped_count:,} GPU events overlap the next of their stream; "
            "sums over kernels clip them, busy time is a union."
        )
    if _said(found.trace, "load_format") == "dummy":
        remarks.append("Recorded on random weights: caches, quality and data-dependent kernels are not real.")
    incomplete = _said(found.trace, "incomplete_reason")
    if incomplete:
        remarks.append(f"The recorded run is incomplete: {incomplete}")
    if not found.marks.stages and not found.marks.steps:
        remarks.append("No stages or steps could be recognised in the trace.")
    return (*remarks, *found.marks.notes, *left_out(recorded_window(found.trace)))
