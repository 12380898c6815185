"""The answer in a few labelled sentences: what every human view shows before anything else.

Which stage dominates, whether steps are uniform, whether the GPU works and why not, what the kernels do, and
what to do first. Times of stages and steps come from the runs where there are any: those are untraced.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analyse.results import (
    Finding,
    GpuSummary,
    OperatorTime,
    RankReport,
    Report,
    RunSummary,
    StepRow,
    StepStatistics,
    StepTime,
)
from stepscope.model.run import StepCacheUse
from stepscope.render import units
from stepscope.render.names import sentence, shorten, shorten_path, visible
from stepscope.render.report.operator_tables import between_share
from stepscope.render.report.rank_names import rank_name, rank_prefix
from stepscope.render.report.rank_tables import IDLE_WORDS
from stepscope.render.report.run_names import run_label
from stepscope.render.report.several_runs import models, several_runs_lines
from stepscope.render.report.stage_sentences import between_sentence, dominant_sentence

MOST_FINDINGS = 8
_SHOWN_RANKS = 4
_SHOWN_CATEGORIES = 5
_PLACE_WIDTH = 60
_NAME_WIDTH = 60
_LONGEST_FILE = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One labelled sentence."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The first screen. ``verdict`` is one word, so that nothing rests on colour."""

    trusted: bool
    verdict: str
    reasons: tuple[str, ...]
    lines: tuple[Line, ...]
    finding: Finding | None
    finding_rank: str | None  # of which rank or run, where several were read


def answer(report: Report) -> Answer:
    """The sentences for ``report``."""
    owner, finding = top_finding(report)
    lines = [*_time_lines(report), *trace_lines(report)]
    order = list(dict.fromkeys(line.label for line in lines))
    lines.sort(key=lambda line: order.index(line.label))  # the same question of all runs and ranks together
    return Answer(
        trusted=report.trust.ok,
        verdict="TRUSTED" if report.trust.ok else "UNTRUSTED",
        reasons=tuple(sentence(reason) for reason in report.trust.reasons) or (_no_reason(report),),
        lines=tuple(Line(label=line.label, text=sentence(line.text)) for line in lines),
        finding=finding,
        finding_rank=owner,
    )


def trace_lines(report: Report) -> list[Line]:
    """What only traces tell: the GPU's time and the kernels'."""
    return [*_gpu_lines(report), *_kernel_lines(report), *_operator_lines(report)]


def _no_reason(report: Report) -> str:
    return "the checks found nothing that disagrees" if report.trust.ok else "no reason was recorded"


def ordered_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Warnings before information, the most expensive first."""
    return sorted(findings, key=lambda finding: (finding.severity != "warning", -(finding.cost_ms or 0.0)))


def shown_findings(findings: Sequence[Finding]) -> list[Finding]:
    """The few that cost most, in that order: a list of hundreds hides the one that matters."""
    return ordered_findings(findings)[:MOST_FINDINGS]


def top_finding(report: Report) -> tuple[str | None, Finding | None]:
    """The finding to read first, and of which rank or run it is where several were read."""
    owners: dict[int, str | None] = {}
    findings: list[Finding] = []
    for run in report.runs:
        findings += run.findings
        name = run_label(run, report.runs) if len(report.runs) > 1 else None
        owners |= {id(finding): name for finding in run.findings}
    for rank in report.ranks:
        findings += rank.findings
        name = rank_name(rank, report.ranks) if len(report.ranks) > 1 else None
        owners |= {id(finding): name for finding in rank.findings}
    first = next(iter(ordered_findings(findings)), None)
    return (owners[id(first)], first) if first is not None else (None, None)


def _time_lines(report: Report) -> list[Line]:
    if len(report.runs) > 1:
        return [Line(label=label, text=text) for label, text in several_runs_lines(report.runs)]
    if report.runs:
        told = [Line(label=label, text=text) for label, text in models(report.runs)]
        return told + run_lines(report.runs[0])
    return [
        line
        for rank in report.ranks[:_SHOWN_RANKS]
        for line in _trace_time_lines(rank, rank_prefix(rank, report.ranks))
    ]


def run_lines(run: RunSummary) -> list[Line]:
    """What one run took: its total, dominant stage and steps."""
    stage = next((stage for stage in run.stages if stage.name == run.dominant_stage), None)
    lines = [Line(label="Total", text=total_sentence(run))]
    if stage is not None:
        lines.append(Line(label="Dominant", text=dominant_sentence(run.stages, stage.name)))
    if between := between_sentence(run):
        lines.append(Line(label="Between", text=between))
    lines.append(Line(label="Steps", text=steps_sentence(run.step_statistics, run.steps)))
    if run.step_cache is not None:
        lines.append(Line(label="Cache", text=cache_sentence(run.step_cache, len(run.steps))))
    return lines


def one_of_several_lines(run: RunSummary) -> list[Line]:
    """The same for a run beside others: with why it may not be trusted, as the first lines tell it of all."""
    lines = [Line(label=line.label, text=sentence(line.text)) for line in run_lines(run)]
    if not run.trust.ok:
        lines.insert(1, Line(label="Untrusted", text=sentence("; ".join(run.trust.reasons))))
    return lines


def cache_sentence(use: StepCacheUse, step_count: int) -> str:
    """Which step cache was mounted, how many steps came from it and what it was worth, told twice."""
    told = f"{visible(use.name)}, {len(use.cached_steps)} of {units.counted(step_count, 'step')} from it"
    by_time, by_blocks = use.effective_speedup, use.theoretical_speedup
    told += "; effective speed-up "
    told += "unknown (no step after step 0 was fully computed)" if by_time is None else f"{by_time:.2f}"
    told += ", theoretical "
    return told + ("unknown (blocks do not tell it)" if by_blocks is None else f"{by_blocks:.2f} by blocks")


def _trace_time_lines(rank: RankReport, name: str) -> list[Line]:
    text = dominant_sentence(rank.stages, rank.dominant_stage)
    return [
        Line(label="Dominant", text=name + text),
        Line(label="Steps", text=name + steps_sentence(rank.step_statistics, rank.steps)),
    ]


def total_sentence(run: RunSummary) -> str:
    """The total and what of it is not accounted for."""
    parts = [f"{units.duration(run.total_ms)} for the pipeline call"]
    if run.incomplete_reason is not None:
        parts.append(f"INCOMPLETE: {run.incomplete_reason}")
    if run.unaccounted_ms is not None:
        parts.append(f"{units.duration(run.unaccounted_ms)} unaccounted")
    if run.traced_ms:
        where = _profiled_steps(run.steps)
        parts.append(f"{units.duration(run.traced_ms)} of it in {where}, with its overhead")
    if run.profiler_pause_ms:
        parts.append(f"profiler pauses of {units.duration(run.profiler_pause_ms)} not counted")
    if run.peak_memory_bytes is not None:
        parts.append(f"peak memory {units.size(run.peak_memory_bytes)}")
    return "; ".join(parts)


def _profiled_steps(steps: Sequence[StepTime]) -> str:
    """How many steps a profiler was at work in: one more than were asked for, where the first warms it up."""
    profiled = [step for step in steps if step.traced]
    warming = [step.index for step in profiled if step.profiler_warmup] if len(profiled) > 1 else []
    text = f"{units.counted(len(profiled), 'step')} under the profiler"
    return f"{text} (step {warming[0]} warms it up)" if warming else text


def steps_sentence(statistics: StepStatistics | None, steps: Sequence[StepTime] | Sequence[StepRow]) -> str:
    """Whether steps are uniform and by which number; else the step that is not like the others, and why."""
    if statistics is None:
        return "none found" if not steps else f"{units.counted(len(steps), 'step')}, too few to judge"
    head = f"{units.count(statistics.count)} {'uniform' if statistics.uniform else 'NOT uniform'}"
    decided = f" ({statistics.decided_by})" if statistics.decided_by else ""
    named, duration_ms, ratio = _named_step(statistics)
    text = (
        f"{head}{decided}: median {units.duration(statistics.median_ms)}, {named} with "
        f"{units.duration(duration_ms)} ({units.ratio(ratio)} the median)"
    )
    index = statistics.slowest if statistics.uniform or statistics.odd is None else statistics.odd
    slowest = next((step for step in steps if step.index == index), None)
    if slowest is not None and slowest.outlier:
        text += f": {slowest.outlier}"
    return f"{text}; over {statistics.basis}" if statistics.basis else text


def _named_step(statistics: StepStatistics) -> tuple[str, float, float]:
    """The step to name, its duration in ms and how often the median it is."""
    odd, odd_ms, ratio = statistics.odd, statistics.odd_ms, statistics.odd_ratio
    if statistics.uniform or odd is None or odd_ms is None or ratio is None or odd == statistics.slowest:
        return f"slowest is step {statistics.slowest}", statistics.maximum_ms, statistics.slowest_ratio
    return f"the odd one is step {odd}", odd_ms, ratio


def _gpu_lines(report: Report) -> list[Line]:
    lines = []
    for rank in report.ranks[:_SHOWN_RANKS]:
        name = rank_prefix(rank, report.ranks)
        lines.append(Line(label="GPU", text=name + gpu_sentence(rank.gpu)))
    left = len(report.ranks) - _SHOWN_RANKS
    return lines + ([Line(label="GPU", text=f"{units.counted(left, 'more rank')} below")] if left > 0 else [])


def gpu_sentence(gpu: GpuSummary | None) -> str:
    """Busy and idle, and why idle."""
    if gpu is None:
        return "no GPU events: a CPU-only run, or GPU activity was not recorded"
    text = f"{gpu.name or 'GPU'} busy {units.share(gpu.busy_ratio)} of {units.duration(gpu.span_ms)}"
    text += f", idle {units.duration(gpu.idle_ms)}"
    causes = sorted(gpu.idle_causes, key=lambda cause: -cause.total_ms)
    if causes and causes[0].total_ms > 0:
        main = causes[0]
        text += f", mostly because {IDLE_WORDS.get(main.cause, main.cause)} ({units.duration(main.total_ms)})"
    if gpu.exposed_copy_ms > 0:
        text += f"; exposed copies {units.duration(gpu.exposed_copy_ms)}"
    if gpu.exposed_communication_ms > 0:
        text += f"; exposed communication {units.duration(gpu.exposed_communication_ms)}"
    return text


def _kernel_lines(report: Report) -> list[Line]:
    """What the kernels of the first rank do; the other ranks have their own tables."""
    rank = next((rank for rank in report.ranks if rank.categories), None)
    if rank is None:
        return []
    shown = rank.categories[:_SHOWN_CATEGORIES]
    text = ", ".join(f"{row.name} {units.share(row.share)}" for row in shown)
    name = rank_prefix(rank, report.ranks)
    lines = [Line(label="GPU time", text=name + text)]
    engaged = engaged_sentence(rank)
    return [*lines, Line(label="Engaged", text=name + engaged)] if engaged else lines


def _operator_lines(report: Report) -> list[Line]:
    """What the operators of the first rank without GPU work do, and what costs most of them."""
    rank = next((rank for rank in report.ranks if rank.operators), None)
    if rank is None or rank.operators is None:
        return []
    found, name = rank.operators, rank_prefix(rank, report.ranks)
    shown = [f"{row.name} {units.share(row.share)}" for row in found.categories[:_SHOWN_CATEGORIES]]
    shown.append(f"Python between operators {units.share(between_share(found))}")
    lines = [Line(label="CPU time", text=f"{name}of {found.basis}: {', '.join(shown)}")]
    return [*lines, Line(label="Costliest", text=name + costliest_sentence(found))]


def costliest_sentence(found: OperatorTime) -> str:
    """The operator, and the line, that take most time."""
    first = found.rows[0]
    calls = units.counted(first.count, "call")
    took = f"{units.duration(first.total_ms)} ({units.share(first.share)})"
    text = f"operator {shorten(visible(first.name), _NAME_WIDTH)}, {took} in {calls}"
    if not found.lines or found.lines[0].source is None:
        return text
    line, source = found.lines[0], found.lines[0].source
    where = f"{shorten_path(visible(source.file), _PLACE_WIDTH)}:{source.line}"
    mark = "" if source.line_exact else ", line of the definition"
    return (
        f"{text}; line {where} ({shorten(visible(source.function), _NAME_WIDTH)}{mark}), "
        f"{units.duration(line.total_ms)} ({units.share(line.share)})"
    )


def engaged_sentence(rank: RankReport) -> str:
    """What was seen at work."""
    engaged = rank.engaged
    parts = []
    if engaged.attention:
        parts.append(f"attention {engaged.attention}")
    if engaged.gemm_dtypes:
        parts.append(f"GEMMs in {', '.join(engaged.gemm_dtypes)}")
    if engaged.compiled_kernel_share > 0:
        parts.append(f"compiled kernels {units.share(engaged.compiled_kernel_share)} of busy time")
    if engaged.graph_replays:
        parts.append(units.counted(engaged.graph_replays, "graph replay"))
    return "; ".join(parts)


def finding_place(finding: Finding) -> str:
    """Where a finding's cause is in Python, or nothing."""
    source = finding.source
    if source is None:
        return ""
    mark = "" if source.line_exact else ", line of the definition"
    file = shorten_path(visible(source.file), _LONGEST_FILE)
    return f"{file}:{source.line} ({shorten(visible(source.function), _NAME_WIDTH)}{mark})"


def next_commands(report: Report) -> list[str]:
    """What to run next, ready to paste."""
    if not report.source:
        return []
    given = " ".join(shlex.quote(visible(path)) for path in report.source[:4])
    commands = [f"stepscope report {given} --format html -o report.html"]
    if report.ranks:
        commands.append(f"stepscope view {shlex.quote(visible(report.ranks[0].path))}")
        kernel = next((row for row in report.ranks[0].kernels if row.ncu_command), None)
        if kernel is not None and kernel.ncu_command:
            commands.append(visible(kernel.ncu_command))
    return commands
