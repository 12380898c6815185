"""Files in, report out: opens traces and perf dumps by what they are, analyses them, puts them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepscope.analyse.report import AnalysedTrace, analyse_trace, assemble
from stepscope.analyse.results import RankReport, Report, RunSummary
from stepscope.analyse.run.summarise import summarise
from stepscope.analyse.trace.analysis import analyse
from stepscope.analyse.trace.waits_in_steps import WaitInSteps, waits_in_steps
from stepscope.model.dump import PerfDump
from stepscope.model.errors import UnreadableInputError
from stepscope.record.input_file import files_below
from stepscope.record.open import InputKind, read_trace, recognise
from stepscope.session.dumps import RUN_KINDS, read_dumps, without_repeated_runs

_TRACES = frozenset({InputKind.KINETO, InputKind.NSIGHT_SQLITE, InputKind.NSIGHT_REPORT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOutcome:
    """The report of what could be read, and a line for each input of which something could not."""

    report: Report
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Read:
    """What has been read so far."""

    sources: list[str] = field(default_factory=list)
    runs: list[RunSummary] = field(default_factory=list)
    traces: list[AnalysedTrace] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    errors: list[UnreadableInputError] = field(default_factory=list)


def report_files(paths: Sequence[Path]) -> ReportOutcome:
    """The report of traces, perf dumps and directories of them.

    An input that cannot be read does not keep the others from being reported: it is a problem.

    Raises:
        UnreadableInputError: nothing could be read of any input.

    """
    read = _Read()
    for path in paths:
        _read_path(path, read)
    if not read.runs and not read.traces:
        raise _nothing(read.errors)
    report = assemble(read.sources, read.runs, read.traces, tuple(str(error) for error in read.errors))
    problems = [str(error) for error in read.errors]
    problems += [f"{one.rank.path}: {text}" for one in read.traces for text in one.incomplete]
    return ReportOutcome(report=report, problems=tuple(problems))


def report_calls(dumps: Sequence[PerfDump], traces: Sequence[Path]) -> Report:
    """The report of calls that were measured here, and of their traces; one that cannot be read is told."""
    read = _Read(runs=[summarise(dump) for dump in dumps])
    for path in traces:
        _read_path(path, read)
    return assemble(read.sources, read.runs, read.traces, tuple(str(error) for error in read.errors))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWaits:
    """What makes the host wait inside the traced steps of one trace."""

    waits: tuple[WaitInSteps, ...]
    step_count: int
    has_device_work: bool


def step_waits(path: Path) -> StepWaits:
    """Every call inside the steps of a trace that waits for the device, whatever it costs.

    Raises:
        UnreadableInputError: it is no trace, or nothing in it can be read.

    """
    found = analyse(read_trace(path))
    return StepWaits(
        waits=waits_in_steps(found), step_count=len(found.marks.steps), has_device_work=len(found.work) > 0
    )


def report_ranks(path: Path) -> tuple[RankReport, ...]:
    """The rank reports of one trace file, for what builds on them.

    Raises:
        UnreadableInputError: it is no trace, or nothing in it can be read.

    """
    return (analyse_trace(read_trace(path)).rank,)


def _read_path(path: Path, read: _Read) -> None:
    """Read one input; of a directory, all traces and dumps in it."""
    try:
        kind = recognise(path)
        if kind is InputKind.DIRECTORY:
            _read_directory(path, read)
        else:
            _read_file(path, kind, read)
    except UnreadableInputError as error:
        read.errors.append(error)


def _read_directory(directory: Path, read: _Read) -> None:
    known = [(path, kind) for path in files_below(directory) if (kind := _kind(path, read)) is not None]
    usable = [
        (path, kind) for path, kind in without_repeated_runs(known) if kind in _TRACES or kind in RUN_KINDS
    ]
    if not usable:
        raise UnreadableInputError(
            f"{directory} holds no trace and no perf dump.",
            remedy="Record one with stepscope generate --profile --perf-dump-path perf.json.",
        )
    for path, _ in usable:
        _read_path(path, read)


def _read_file(path: Path, kind: InputKind, read: _Read) -> None:
    if kind in RUN_KINDS:
        read.runs.extend(summarise(dump, path=str(path)) for dump in read_dumps(path))
    else:
        read.traces.append(_analysed(path))
    read.sources.append(str(path))


def _analysed(path: Path) -> AnalysedTrace:
    """One trace analysed. Only one trace's events are held at a time."""
    found = analyse_trace(read_trace(path))
    if found.rank.gpu is None and not found.rank.stages and not found.has_host_events:
        raise UnreadableInputError(
            f"{path} has no GPU events and no host events: there is nothing to report.",
            remedy="Record CPU and GPU activity, and keep the profiler on while the pipeline runs.",
        )
    return found


def _kind(path: Path, read: _Read) -> InputKind | None:
    try:
        return recognise(path)
    except UnreadableInputError as error:
        read.errors.append(error)
        return None


def _nothing(errors: Sequence[UnreadableInputError]) -> UnreadableInputError:
    if len(errors) == 1:
        return errors[0]
    return UnreadableInputError("nothing could be read: " + " ".join(error.message for error in errors))
