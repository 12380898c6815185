"""Runs against budgets: reads dumps, traces, budget and history, judges, and keeps the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from stepscope.analyse.comparison.gate import gate, history_entry
from stepscope.analyse.comparison.gate_results import GATE_SCHEMA_VERSION, GateReport, GateResult
from stepscope.analyse.findings import FINDING_IDS
from stepscope.analyse.results import RankReport
from stepscope.analyse.run.run_findings import RUN_FINDING_IDS
from stepscope.analyse.run.summarise import summarise
from stepscope.model.budget import Baseline, Budgets, HistoryEntry
from stepscope.model.dump import PerfDump
from stepscope.model.errors import UnreadableInputError, UsageError
from stepscope.model.nearest import nearest
from stepscope.model.vocabulary import TraceSource
from stepscope.record.budget_reader import read_budgets
from stepscope.record.input_file import files_below
from stepscope.record.json_lines import append_line, read_lines
from stepscope.record.open import InputKind, recognise
from stepscope.session.dumps import read_dumps
from stepscope.session.report import report_ranks

_IDS = (*FINDING_IDS, *RUN_FINDING_IDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What to hold against what."""

    budget: Path
    dumps: tuple[Path, ...]
    traces: tuple[Path, ...] = ()
    history: Path | None = None
    record: bool = False  # add the runs to the history


def run_gate(options: GateOptions) -> GateReport:
    """Hold every run in the dumps against the budgets.

    Raises:
        UnreadableInputError: a dump, trace, budget or history cannot be read.
        UsageError: a trace is of none of the runs.
        RunFailedError: the history cannot be written.

    """
    budgets = _with_baseline(read_budgets(options.budget), options.history)
    _check_findings(budgets.rules.forbid_findings, options.budget)
    history = read_lines(options.history, HistoryEntry) if options.history else ()
    ranks = [rank for path in options.traces for rank in report_ranks(path)]
    files = [file for given in options.dumps for file in _dump_files(given)]
    runs = [(dump, path) for path in files for dump in read_dumps(path)]
    _refuse_traces_of_others([dump for dump, _ in runs], ranks)
    results = []
    for dump, path in runs:
        mine = [rank for rank in ranks if _may_be_of(rank, dump)]
        result = _gate_one(dump, path, budgets, mine, history)
        results.append(result)
        if options.record and options.history is not None:
            _record(options.history, dump, path, result)
    return GateReport(
        schema_version=GATE_SCHEMA_VERSION,
        passed=all(result.passed for result in results),
        results=tuple(results),
    )


def _refuse_traces_of_others(dumps: Sequence[PerfDump], ranks: Sequence[RankReport]) -> None:
    """A trace of another run would be judged in place of this one's."""
    for rank in ranks:
        if not any(_may_be_of(rank, dump) for dump in dumps):
            known = ", ".join(dict.fromkeys(dump.request_id for dump in dumps))
            raise UsageError(
                f"{rank.path} is the trace of request {rank.request_id}, not of {known}.",
                remedy="Give the trace that was recorded with the run.",
            )


def _may_be_of(rank: RankReport, dump: PerfDump) -> bool:
    """Whether trace and run name the same request; one that names none may be of any."""
    named = _named_request(rank)
    return named is None or not dump.request_id or named == dump.request_id


def _named_request(rank: RankReport) -> str | None:
    """The request that a trace names. In a file name of other recorders only a UUID is one for certain."""
    if not rank.request_id or rank.source == TraceSource.STEPSCOPE.value:
        return rank.request_id or None
    try:
        UUID(rank.request_id)
    except ValueError:
        return None
    return rank.request_id


def _check_findings(forbidden: Sequence[str], path: Path) -> None:
    """A finding that does not exist is never found: forbidding it would check nothing."""
    for finding_id in forbidden:
        if finding_id not in _IDS:
            near = nearest(finding_id, _IDS)
            raise UnreadableInputError(
                f"{path}: there is no finding {finding_id}.",
                remedy=f"Did you mean {near[0]}?" if near else f"There are {', '.join(_IDS)}.",
            )


def _dump_files(path: Path) -> list[Path]:
    """The dump itself, or every dump in a run folder."""
    if not path.is_dir():
        return [path]
    found = [file for file in files_below(path) if recognise(file) is InputKind.PERF_DUMP]
    if not found:
        raise UnreadableInputError(
            f"{path} holds no perf dump.", remedy="Give a folder of generate --run-dir, or a dump."
        )
    return found


def _gate_one(
    dump: PerfDump,
    path: Path,
    budgets: Budgets,
    ranks: Sequence[RankReport],
    history: Sequence[HistoryEntry],
) -> GateResult:
    return gate(summarise(dump, path=str(path)), budgets, ranks=ranks, history=history)


def _record(history: Path, dump: PerfDump, path: Path, result: GateResult) -> None:
    summary = summarise(dump, path=str(path))
    append_line(history, history_entry(summary, result, timestamp=dump.timestamp, commit=dump.commit_hash))


def _with_baseline(budgets: Budgets, history: Path | None) -> Budgets:
    """A history asks for the baseline even where the budget file does not set it."""
    if history is None or budgets.baseline is not None:
        return budgets
    return Budgets(default=budgets.default, gpu=budgets.gpu, rules=budgets.rules, baseline=Baseline())
