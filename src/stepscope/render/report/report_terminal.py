"""The report in a terminal: at most 100 columns, the answer on the first screen, details below.

Colour only repeats what words say. On a pipe, with ``NO_COLOR`` or ``TERM=dumb`` the text is plain.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from stepscope.analyse.results import Finding, OperatorTime, RankReport, Report, RunSummary
from stepscope.render import terminal_tables as tables
from stepscope.render import units
from stepscope.render.names import sentence, shorten_path, visible
from stepscope.render.report.answer import (
    Answer,
    Line,
    answer,
    finding_place,
    next_commands,
    one_of_several_lines,
    shown_findings,
    trace_lines,
)
from stepscope.render.report.operator_tables import operators_note
from stepscope.render.report.rank_names import rank_prefix
from stepscope.render.report.run_names import run_heading
from stepscope.render.wrapping import wrap_command

MAXIMUM_WIDTH = 100
_SHOWN_REASONS = 3
_RANKS_IN_FULL = 2
_ASCII = str.maketrans(
    {
        "…": "~",
        "–": "-",
        "µ": "u",
        "─": "-",
        "█": "#",
        "·": "|",
        "×": "x",
        "▏": "|",
        **dict.fromkeys("▁▂▃▄▅▆▇▎▍▌▋▊▉", "#"),
    }
)


def render_terminal(report: Report, console_width: int = MAXIMUM_WIDTH) -> str:
    """The report as plain text, no line wider than ``console_width`` but commands that must stay whole."""
    stream = io.StringIO()
    console = console_for(stream, console_width)
    _print(report, console, console_width)
    return trimmed(stream.getvalue())


def render_trace_part(report: Report, console_width: int = MAXIMUM_WIDTH) -> str:
    """What the traces of a report show, to stand below the summary of its run.

    Without a second verdict, total or sentence on steps: those of a trace are of its few steps and slowed.
    """
    stream = io.StringIO()
    console = console_for(stream, console_width)
    said = answer(replace(report, runs=()))
    parts: list[RenderableType] = [*_sources(report, console_width), _labelled(tuple(trace_lines(report)))]
    parts += _top_finding(said)
    for rank in report.ranks[:_RANKS_IN_FULL]:
        parts += _rank_section(rank, console_width, rank_prefix(rank, report.ranks))
    console.print(Group(*parts, *_warnings(report)))
    if commands := _commands(report, console_width):
        console.print(Group(*commands), crop=False)
    return trimmed(stream.getvalue())


def write_terminal(report: Report, stream: TextIO) -> None:
    """Write the report to ``stream``: coloured for a terminal, plain for a pipe, in what it can encode."""
    detected = Console(file=stream)  # rich looks at isatty, NO_COLOR, TERM and COLUMNS
    width = min(detected.width, MAXIMUM_WIDTH) if detected.is_terminal else MAXIMUM_WIDTH
    text = io.StringIO()
    console = console_for(text, width, like=detected)
    _print(report, console, width)
    stream.write(in_encoding(trimmed(text.getvalue()), stream.encoding))


def console_for(file: TextIO, width: int, like: Console | None = None) -> Console:
    """A console that takes text as it is; ``like`` tells whether it may colour."""
    coloured = like is not None and like.is_terminal
    return Console(
        file=file,
        width=width,
        force_terminal=coloured,
        color_system=like.color_system if like is not None and coloured else None,  # type: ignore[arg-type]
        no_color=like.no_color if like is not None else True,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def in_encoding(text: str, encoding: str | None) -> str:
    """``text`` with what ``encoding`` cannot say replaced by something that it can."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        plain = text.translate(_ASCII)
        return plain.encode(encoding or "ascii", "replace").decode(encoding or "ascii")
    return text


def _print(report: Report, console: Console, width: int) -> None:
    """Tables end where the console does; commands do not, since a cut one cannot be run."""
    console.print(terminal_report(report, width))
    if commands := _commands(report, width):
        console.print(Group(*commands), crop=False)


def terminal_report(report: Report, width: int = MAXIMUM_WIDTH) -> RenderableType:
    """The report for a rich console, but for the commands at its end."""
    said = answer(report)
    parts: list[RenderableType] = [
        _verdict(said),
        *_sources(report, width),
        Text(),
        _labelled(said.lines),
        *_top_finding(said),
        *_overview(report, width),
    ]
    for run in report.runs:
        parts += _run_section(run, width, report.runs)
    for rank in report.ranks[:_RANKS_IN_FULL]:
        parts += _rank_section(rank, width, rank_prefix(rank, report.ranks))
    left = len(report.ranks) - _RANKS_IN_FULL
    if left > 0:
        parts.append(
            Text(f"\nThe tables of {units.counted(left, 'more rank')} are in --format html and json.")
        )
    return Group(*parts, *_warnings(report))


def _verdict(said: Answer) -> Text:
    style = "bold green" if said.trusted else "bold white on red"
    text = Text.assemble((f"{said.verdict}:", style), f" {said.reasons[0]}")
    for reason in said.reasons[1:_SHOWN_REASONS]:
        text.append(f"\n  also: {reason}")
    left = len(said.reasons) - _SHOWN_REASONS
    return (
        text.append(f"\n  and {units.counted(left, 'more reason')}, see --format json") if left > 0 else text
    )


def _sources(report: Report, width: int) -> Iterator[Text]:
    """One line a file, three at most; a trace says who recorded it."""
    recorded = {
        rank.path: f"{rank.source}, {units.counted(rank.event_count, 'event')}" for rank in report.ranks
    }
    for path in report.source[:3]:
        detail = f" ({visible(recorded[path])})" if path in recorded else ""
        yield Text(f"{shorten_path(path, width - len(detail))}{detail}", style="dim")
    if len(report.source) > 3:
        yield Text(f"and {units.counted(len(report.source) - 3, 'more file')}", style="dim")


def _labelled(lines: tuple[Line, ...]) -> Grid:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold cyan", width=9)
    grid.add_column(overflow="fold")
    previous = ""
    for line in lines:
        grid.add_row(Text(line.label if line.label != previous else ""), Text(line.text))
        previous = line.label
    return grid


def _top_finding(said: Answer) -> list[RenderableType]:
    if said.finding is None:
        return [_labelled((Line(label="Finding", text="none: no rule found a known inefficiency"),))]
    return [finding_lines(said.finding, label="Finding", rank=said.finding_rank)]


def finding_lines(finding: Finding, *, label: str, rank: str | None = None) -> Grid:
    """What was found, what was seen of it, what to do and where: a labelled line each."""
    where = "" if rank is None else f"{rank}: "
    cost = "cost not known" if finding.cost_ms is None else f"costs {units.duration(finding.cost_ms)}"
    lines = [
        Line(label=label, text=f"{where}{sentence(finding.title)}: {cost} [{visible(finding.id)}]"),
        Line(label="  seen", text=sentence(finding.evidence)),
        Line(label="  do", text=sentence(finding.remedy)),
    ]
    place = finding_place(finding)
    return _labelled((*lines, Line(label="  where", text=place)) if place else tuple(lines))


def _heading(title: str) -> list[RenderableType]:
    return [Text(), Rule(Text(visible(title), style="bold"), align="left", characters="─", style="dim")]


def _overview(report: Report, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if len(report.runs) > 1:
        parts += [*_heading("Runs"), tables.runs(report, width)]
    if len(report.ranks) > 1 and any(rank.gpu for rank in report.ranks):
        parts += [*_heading("Ranks"), tables.gpus(report, width)]
    return parts


def _run_section(run: RunSummary, width: int, runs: Sequence[RunSummary]) -> list[RenderableType]:
    several = len(runs) > 1
    title = run_heading(run, runs) if several else "Stages of the run"
    parts = _heading(f"{title} ({run.producer})")
    parts += [_labelled(tuple(one_of_several_lines(run))), Text()] if several else []
    parts.append(tables.run_stages(run, width))
    if run.outside:
        outside = ", ".join(
            f"{visible(part.name)} {units.duration(part.duration_ms)}" for part in run.outside
        )
        parts.append(Text(f"outside the call, not in the total: {outside}"))
    parts += [*_heading("Steps of the run"), *tables.run_steps(run, width)]
    if run.engaged:
        engaged = ", ".join(f"{visible(name)} {visible(value)}" for name, value in run.engaged)
        parts += [*_heading("Engaged"), Text(engaged)]
    parts += [Text(f"warning: {sentence(warning)}") for warning in run.warnings]
    return parts + _findings(run.findings, "Findings of the run")


def _rank_section(rank: RankReport, width: int, name: str) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if rank.stages:
        parts += [*_heading(f"{name}Stages in the trace"), tables.rank_stages(rank, width)]
        if rank.outside_kernel_count:
            parts.append(Text(f"{units.counted(rank.outside_kernel_count, 'kernel')} in no stage"))
    if rank.steps:
        parts += [*_heading(f"{name}Steps in the trace"), *tables.rank_steps(rank, width)]
    if rank.gpu and rank.gpu.idle_causes:
        parts += [*_heading(f"{name}Why the GPU was idle"), tables.rank_idle(rank, width)]
    if rank.categories:
        parts += [*_heading(f"{name}GPU time by category"), tables.rank_categories(rank, width)]
    if rank.kernels:
        parts += [*_heading(f"{name}{tables.kernel_title(rank)}"), tables.rank_kernels(rank, width)]
    if rank.operators:
        parts += _operator_section(rank, rank.operators, width, name)
    if rank.annotations:
        parts += [*_heading(f"{name}Recorded ranges"), tables.rank_annotations(rank, width)]
    if rank.transfers:
        parts += [*_heading(f"{name}Transfers"), tables.rank_transfers(rank, width)]
    return parts + _findings(rank.findings, f"{name}Findings")


def _operator_section(
    rank: RankReport, found: OperatorTime, width: int, name: str
) -> Iterator[RenderableType]:
    """What the operators took where there are no kernels, and which lines and modules called them."""
    yield from _heading(f"{name}Time by operator category")
    yield Text(operators_note(found))
    yield tables.rank_operator_categories(rank, width)
    yield from _heading(f"{name}{tables.operator_title(rank)}")
    yield tables.rank_operators(rank, width)
    if found.lines:
        yield from _heading(f"{name}Lines of Python")
        yield tables.rank_lines(rank, width)
    if found.modules:
        yield from _heading(f"{name}Modules")
        yield tables.rank_modules(rank, width)


def _findings(findings: Sequence[Finding], title: str) -> list[RenderableType]:
    if not findings:
        return []
    parts = _heading(title)
    for index, finding in enumerate(shown_findings(findings), 1):
        label = f"{index}." if finding.severity == "warning" else f"{index}. info"
        parts.append(finding_lines(finding, label=label))
    return parts


def _warnings(report: Report) -> list[RenderableType]:
    if not report.warnings:
        return []
    bullets = [Text(f"- {sentence(warning)}") for warning in report.warnings]
    return [*_heading("Warnings"), *bullets]


def _commands(report: Report, width: int) -> list[RenderableType]:
    commands = next_commands(report)
    if not commands:
        return []
    lines = [Text(wrap_command(command, width), no_wrap=True, overflow="ignore") for command in commands]
    return [*_heading("Next"), *lines]
