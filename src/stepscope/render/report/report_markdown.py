"""The report as Markdown for a pull request: the answer in sight, the tables folded away.

Text from traces becomes code or is escaped, so that it can neither add markup nor mention people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stepscope.analyse.results import Finding, RankReport, Report, RunSummary
from stepscope.render import units
from stepscope.render.names import shorten, shorten_kernels, visible
from stepscope.render.report import operator_tables, rank_tables, report_tables, run_tables
from stepscope.render.report.answer import (
    answer,
    finding_place,
    next_commands,
    one_of_several_lines,
    shown_findings,
)
from stepscope.render.report.rank_names import rank_prefix
from stepscope.render.report.run_names import run_label
from stepscope.render.tables import Column, Kind, Table, Value, cell_text

_KERNEL_ROWS = 20
_TRANSFER_ROWS = 20
_STEP_ROWS = 60
_NAME_WIDTH = 80
_LONGEST_TEXT = 1000
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#|~&])")


def render_markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown, ending in a line feed."""
    return "\n".join(_lines(report)).rstrip("\n") + "\n"


def _lines(report: Report) -> Iterator[str]:
    said = answer(report)
    yield f"### stepscope: {said.verdict.lower()}, {prose(said.reasons[0])}"
    yield ""
    for reason in said.reasons[1:]:
        yield f"- also: {prose(reason)}"
    if len(said.reasons) > 1:
        yield ""
    yield "| | |"
    yield "| --- | --- |"
    for line in said.lines:
        yield f"| **{line.label}** | {prose(line.text)} |"
    if said.finding is not None:
        where = "" if said.finding_rank is None else f"{prose(said.finding_rank)}: "
        yield f"| **Finding** | {where}{_finding_sentence(said.finding)} |"
    yield ""
    yield from _overview(report)
    for run in report.runs:
        yield from _run(run, report.runs)
    for rank in report.ranks:
        yield from _rank(rank, rank_prefix(rank, report.ranks))
    yield from _warnings(report)
    yield from _next(report)


def _finding_sentence(finding: Finding) -> str:
    cost = "cost not known" if finding.cost_ms is None else f"costs {units.duration(finding.cost_ms)}"
    place = finding_place(finding)
    where = f" at {code(place)}" if place else ""
    return (
        f"{prose(finding.title)} ({cost}, {code(finding.id)}){where}. "
        f"Seen: {prose(finding.evidence.rstrip('. '))}. Do: {prose(finding.remedy)}"
    )


def _overview(report: Report) -> Iterator[str]:
    if len(report.runs) > 1:
        yield from _folded("Runs", report_tables.runs_table(report))
    if report.ranks:
        yield from _folded("GPUs", report_tables.gpus_table(report))


def _run(run: RunSummary, runs: Sequence[RunSummary]) -> Iterator[str]:
    name = f"{run_label(run, runs)}: " if len(runs) > 1 else ""
    if name:
        yield from _opened(f"{name}in words")
        yield from (f"- **{line.label}** {prose(line.text)}" for line in one_of_several_lines(run))
        yield from _closed()
    yield from _folded(f"{name}stages of the run", run_tables.run_stages_by_name(run))
    yield from _folded(f"{name}steps of the run", run_tables.run_steps(run), limit=_STEP_ROWS)
    yield from _folded(f"{name}outside the call", run_tables.run_outside(run))
    yield from _folded(f"{name}engaged, workload, environment", run_tables.run_facts(run))
    yield from _findings(run.findings, f"{name}findings of the run")


def _rank(rank: RankReport, name: str) -> Iterator[str]:
    yield from _folded(f"{name}stages in the trace", rank_tables.rank_stages_by_name(rank))
    yield from _folded(f"{name}steps in the trace", rank_tables.rank_steps(rank), limit=_STEP_ROWS)
    yield from _folded(f"{name}GPU time by category", rank_tables.rank_categories(rank))
    kernels = rank_tables.rank_kernels(rank).pick(
        "name", "category", "total_ms", "share", "count", "mean_us", "source"
    )
    yield from _folded(f"{name}kernels", kernels, limit=_KERNEL_ROWS)
    if rank.operators:
        yield from _operators(rank, name)
    yield from _folded(f"{name}transfers", rank_tables.rank_transfers(rank), limit=_TRANSFER_ROWS)
    yield from _folded(f"{name}why the GPU was idle", rank_tables.rank_idle(rank))
    yield from _folded(f"{name}recorded ranges", rank_tables.rank_annotations(rank), limit=_TRANSFER_ROWS)
    yield from _findings(rank.findings, f"{name}findings")


def _operators(rank: RankReport, name: str) -> Iterator[str]:
    yield from _folded(f"{name}time by operator category", operator_tables.rank_operator_categories(rank))
    operators = operator_tables.rank_operators(rank)
    yield from _folded(f"{name}operators by self time", operators, limit=_KERNEL_ROWS)
    yield from _folded(f"{name}lines of Python", operator_tables.rank_lines(rank), limit=_KERNEL_ROWS)
    yield from _folded(f"{name}modules", operator_tables.rank_modules(rank), limit=_KERNEL_ROWS)


def _findings(findings: Sequence[Finding], title: str) -> Iterator[str]:
    if findings:
        yield from _opened(title)
        for finding in shown_findings(findings):
            yield f"1. {_finding_sentence(finding)}"
        yield from _closed()


def _folded(title: str, table: Table, limit: int = 100) -> Iterator[str]:
    """A table under a line that opens it; nothing where it has no rows."""
    if not table.rows:
        return
    shown = table.head(limit).without_empty_columns()
    yield from _opened(title)
    yield "| " + " | ".join(column.title for column in shown.columns) + " |"
    yield "| " + " | ".join("---:" if column.kind.numeric else "---" for column in shown.columns) + " |"
    columns = [_column(column, [row[at] for row in shown.rows]) for at, column in enumerate(shown.columns)]
    for cells in zip(*columns, strict=True):
        yield "| " + " | ".join(cells) + " |"
    left = len(table.rows) - len(shown.rows)
    if left > 0:
        yield ""
        yield f"{units.counted(left, 'more row')} with `--format csv --table {table.name}`"
    yield from _closed()


def _column(column: Column, values: list[Value]) -> list[str]:
    if column.title == "kernel":
        return [code(text) for text in shorten_kernels([str(value) for value in values], _NAME_WIDTH)]
    texts = [cell_text(column.kind, value) for value in values]
    if column.kind in {Kind.CODE, Kind.SOURCE}:
        return [code(shorten(text, 2 * _NAME_WIDTH)) for text in texts]
    return [prose(text) for text in texts]


def _opened(title: str) -> Iterator[str]:
    yield f"<details><summary>{prose(title)}</summary>"
    yield ""


def _closed() -> Iterator[str]:
    yield ""
    yield "</details>"
    yield ""


def _warnings(report: Report) -> Iterator[str]:
    found = [*report.warnings, *(text for run in report.runs for text in run.warnings)]
    if found:
        yield from _opened(units.counted(len(found), "warning"))
        for warning in found:
            yield f"- {prose(warning)}"
        yield from _closed()


def _next(report: Report) -> Iterator[str]:
    commands = next_commands(report)
    if commands:
        yield from _opened("next commands")
        yield from ("    " + command for command in commands)
        yield from _closed()


def prose(text: str) -> str:
    """Text that reads as it is: no markup, no HTML, no mention, no link to an issue."""
    shown = shorten(visible(text), _LONGEST_TEXT)
    escaped = _MARKUP.sub(lambda found: _ESCAPES.get(found[1], "\\" + found[1]), shown)
    return escaped.replace("@", "@<!-- -->").replace("://", ":<!-- -->//").replace("www.", "www<!-- -->.")


_ESCAPES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "(": "(", ")": ")", "{": "{", "}": "}", "#": "#<!-- -->"}


def code(text: str) -> str:
    """Text as a code span that can stand in a table cell; nothing for nothing."""
    shown = visible(text).strip()
    if not shown:
        return ""
    runs = [len(found) for found in re.findall(r"`+", shown)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")
