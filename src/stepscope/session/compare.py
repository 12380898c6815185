"""Files in, comparison out: reads dumps, run folders and traces, and puts the analyses together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path, PurePath

from stepscope.analyse.comparison.cohort import Cohort, Observation, observe, observe_trace, side_of
from stepscope.analyse.comparison.compare import (
    compare,
    fails_above,
    undecided,
    unlike,
    withhold_verdicts,
)
from stepscope.analyse.comparison.compare_kernels import compare_kernels
from stepscope.analyse.comparison.compare_results import (
    COMPARE_SCHEMA_VERSION,
    CompareReport,
    Comparison,
    KernelComparison,
)
from stepscope.analyse.results import RankReport
from stepscope.analyse.run.summarise import summarise
from stepscope.model.errors import StepscopeError, UnreadableInputError, UsageError
from stepscope.record.input_file import files_below
from stepscope.record.open import TRACE_KINDS, InputKind, recognise
from stepscope.record.perf_dump import numbered
from stepscope.record.run_record import RUN_FILE
from stepscope.session.compare_quality import SavedOutput, quality_rows, saved_outputs
from stepscope.session.dumps import RUN_KINDS, read_dumps, without_repeated_runs
from stepscope.session.path_names import runs_told_apart, told_apart
from stepscope.session.report import report_ranks

TraceReports = Callable[[Path], Sequence[RankReport]]
"""The report of each rank in a trace file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """One run with what a comparison looks at beside its times."""

    observation: Observation
    outputs: tuple[SavedOutput, ...] = ()
    ranks: tuple[RankReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSide:
    """Repeated runs of one thing, under the name that results give it."""

    label: str
    runs: tuple[LoadedRun, ...]
    copies: int = 0  # of runs that are there already, left out


def compare_files(
    base: Sequence[Path],
    news: Sequence[Sequence[Path]],
    *,
    anyway: bool = False,
    read_trace: TraceReports = report_ranks,
) -> CompareReport:
    """Compare every new side with the base; the paths of a side are repeated runs of one thing.

    Raises:
        UnreadableInputError: a path is no dump, run folder or trace.
        UsageError: the runs are unlike, and ``anyway`` was not given.

    """
    paths = [list(base), *(list(side) for side in news)]
    for side in paths:
        _refuse_repeated(side)
    beside = _calls_beside([path for side in paths for path in side])
    sides = [
        _without_copies(load_side(label, side, read_trace=read_trace))
        for label, side in zip(_labels(paths), paths, strict=True)
    ]
    report = _warned(compare_sides(sides[0], sides[1:]), beside)
    if anyway:
        return report
    _refuse_unlike(report.comparisons)
    return without_untrusted_verdicts(report)


def _refuse_repeated(paths: Sequence[Path]) -> None:
    """The same file twice is one run: taken for two, it would look like a run without any noise."""
    places = [Path(os.path.realpath(path)) for path in paths]
    for (path, place), (_, other) in permutations(zip(paths, places, strict=True), 2):
        if place == other or other in place.parents:
            raise UsageError(f"{path} is given twice on one side.", remedy="Every run counts once.")


def _calls_beside(paths: Sequence[Path]) -> tuple[str, ...]:
    """That a folder of ``--run-dir`` has more calls beside it (``DIR-1``, ...) that are not given."""
    given = {os.path.realpath(path) for path in paths}
    said = []
    for path in paths:
        if not os.path.isfile(path / RUN_FILE):  # noqa: PTH113  pathlib raises for a path too long
            continue
        further = (numbered(path, number) for number in itertools.count(1))
        beside = itertools.takewhile(lambda folder: (folder / RUN_FILE).is_file(), further)
        if left := [folder.name for folder in beside if os.path.realpath(folder) not in given]:
            said.append(f"beside {path} there are more calls that are not compared: {', '.join(left)}")
    return tuple(said)


def _warned(report: CompareReport, said: Sequence[str]) -> CompareReport:
    if not said:
        return report
    comparisons = (replace(each, warnings=(*each.warnings, *said)) for each in report.comparisons)
    return replace(report, comparisons=tuple(comparisons))


def _without_copies(side: LoadedSide) -> LoadedSide:
    """Each recording once: no two runs take the same time to the last digit in every stage and step."""
    kept: list[LoadedRun] = []
    for run in side.runs:
        if all(_times(run) != _times(other) for other in kept):
            kept.append(run)
    return replace(side, runs=tuple(kept), copies=len(side.runs) - len(kept))


def _times(run: LoadedRun) -> tuple[object, ...]:
    seen = run.observation
    return seen.total_ms, seen.stages, seen.steps


def load_side(label: str, paths: Sequence[Path], *, read_trace: TraceReports = report_ranks) -> LoadedSide:
    """Every run in the paths of one side.

    Raises:
        UnreadableInputError: a path is no dump, run folder or trace.
        UsageError: there is no run in them.

    """
    runs = tuple(run for path in paths for run in load_runs(path, read_trace))
    if not runs:
        raise UsageError(f"{label} holds no run.", remedy="Give at least one perf dump or trace a side.")
    return LoadedSide(label=label, runs=runs)


def compare_sides(base: LoadedSide, news: Sequence[LoadedSide]) -> CompareReport:
    """Every new side against the base, with kernels and outputs where the runs have them."""
    base, *news = _named([base, *news])
    cohort = _cohort(base)
    return CompareReport(
        schema_version=COMPARE_SCHEMA_VERSION,
        base=side_of(cohort),
        comparisons=tuple(_with_details(compare(cohort, _cohort(new)), base, new) for new in news),
    )


def _named(sides: Sequence[LoadedSide]) -> list[LoadedSide]:
    """The sides with every run under the shortest name that no other file of the comparison has."""
    paths = [PurePath(run.observation.path) for side in sides for run in side.runs]
    names = iter(runs_told_apart(paths))
    return [
        replace(
            side,
            runs=tuple(
                replace(run, observation=replace(run.observation, name=next(names))) for run in side.runs
            ),
        )
        for side in sides
    ]


def without_untrusted_verdicts(report: CompareReport) -> CompareReport:
    """The report with no verdict on times wherever a run's numbers are untrusted."""
    comparisons = (withhold_verdicts(each, report.base) for each in report.comparisons)
    return replace(report, comparisons=tuple(comparisons))


def limit_reasons(report: CompareReport, limit: float) -> tuple[str, ...]:
    """Why the new sides break ``limit`` (0.05: 5 % slower end to end); none where all keep it."""
    reasons = (fails_above(comparison, limit, base=report.base) for comparison in report.comparisons)
    return tuple(reason for reason in reasons if reason)


def limit_doubts(report: CompareReport, limit: float) -> tuple[str, ...]:
    """Of the new sides that do not break ``limit``: which of them only noise keeps from it, maybe."""
    doubts = (undecided(comparison, limit) for comparison in report.comparisons)
    return tuple(doubt for doubt in doubts if doubt)


def load_runs(path: Path, read_trace: TraceReports) -> tuple[LoadedRun, ...]:
    """The runs of a file or a folder: a folder holds one or several runs with their traces."""
    kind = recognise(path)
    if kind is InputKind.DIRECTORY:
        return _from_folder(path, read_trace)
    if kind in TRACE_KINDS:
        return (_from_trace(path, read_trace),)
    return tuple(
        LoadedRun(
            observation=observe(summarise(dump, path=str(path))),
            outputs=saved_outputs(dump.outputs, near=path.parent),
        )
        for dump in read_dumps(path)
    )


def _from_folder(folder: Path, read_trace: TraceReports) -> tuple[LoadedRun, ...]:
    """The dumps below a folder are its runs; its first trace, if any, goes with the first of them."""
    known = [(path, kind) for path in files_below(folder) if (kind := _kind(path)) is not None]
    dumps = [path for path, kind in without_repeated_runs(known) if kind in RUN_KINDS]
    traces = [path for path, kind in known if kind in TRACE_KINDS]
    if not dumps and not traces:
        raise UnreadableInputError(
            f"{folder} holds no perf dump and no trace.",
            remedy="Give a folder written with --run-dir, or the files themselves.",
        )
    if not dumps:
        return tuple(_from_trace(path, read_trace) for path in traces)
    runs = [run for path in dumps for run in load_runs(path, read_trace)]
    ranks = tuple(rank for path in traces[:1] for rank in read_trace(path))
    return (replace(runs[0], ranks=ranks), *runs[1:])


def _kind(path: Path) -> InputKind | None:
    try:
        return recognise(path)
    except StepscopeError:
        return None


def _from_trace(path: Path, read_trace: TraceReports) -> LoadedRun:
    ranks = tuple(read_trace(path))
    if not ranks:
        raise UnreadableInputError(f"{path} holds no rank with GPU work.")
    return LoadedRun(observation=observe_trace(ranks[0]), ranks=ranks)


def _cohort(side: LoadedSide) -> Cohort:
    return Cohort(label=side.label, runs=tuple(run.observation for run in side.runs))


def _with_details(comparison: Comparison, base: LoadedSide, new: LoadedSide) -> Comparison:
    left, right = base.runs, new.runs
    facts = (left[0].observation.facts, right[0].observation.facts)
    copies = [
        f"{side.label}: {side.copies} more of its runs equal another to the last digit: copies count once"
        for side in (base, new)
        if side.copies
    ]
    if any(_times(run) == _times(other) for run in left for other in right):
        copies.append("both sides hold the same recording")
    return replace(
        comparison,
        warnings=(*copies, *comparison.warnings),
        quality=quality_rows([run.outputs for run in left], [run.outputs for run in right], facts),
        kernels=_kernels(left, right),
    )


def _kernels(left: Sequence[LoadedRun], right: Sequence[LoadedRun]) -> KernelComparison | None:
    """Kernels of the first traced run of each side, same rank; None where neither trace has GPU events."""
    base = next((run.ranks[0] for run in left if run.ranks), None)
    new = next((run.ranks[0] for run in right if run.ranks), None)
    if base is None or new is None or (base.gpu is None and new.gpu is None):
        return None
    return compare_kernels(base, new)


def _refuse_unlike(comparisons: Sequence[Comparison]) -> None:
    for comparison in comparisons:
        if reasons := unlike(comparison):
            raise UsageError(
                f"these runs are not alike ({'; '.join(reasons)}).",
                remedy="Compare like with like, or give --anyway to see the numbers all the same.",
            )


def _labels(sides: Sequence[Sequence[Path]]) -> list[str]:
    """A short name for each side, told apart by as much of the path as that takes."""
    first = [paths[0] if paths else Path("(nothing)") for paths in sides]
    return [
        label if len(paths) < 2 else f"{label} and {len(paths) - 1} more"
        for label, paths in zip(told_apart(first), sides, strict=True)
    ]
