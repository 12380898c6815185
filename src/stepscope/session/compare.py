"""Files in, comparison out: reads dumps, run folders and traces, and puts the analyses together."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.analyse.cohort import Cohort, Observation, observe, observe_trace, side_of
from stepscope.analyse.compare import compare, fails_above, unlike, withhold_verdicts
from stepscope.analyse.compare_kernels import compare_kernels
from stepscope.analyse.compare_results import (
    COMPARE_SCHEMA_VERSION,
    CompareReport,
    Comparison,
    KernelComparison,
)
from stepscope.analyse.results import RankReport
from stepscope.analyse.summarise import summarise
from stepscope.model.errors import UnreadableInputError, UsageError
from stepscope.record.perf_dump_reader import read_perf_dumps
from stepscope.session.compare_quality import SavedOutput, quality_rows, saved_outputs
from stepscope.session.trace_reports import TraceReports, report_trace

_TRACE_SUFFIXES = (".trace.json", ".trace.json.gz", ".sqlite", ".sqlite.gz", ".nsys-rep")
_SNIFFED_BYTES = 1 << 18  # traceEvents comes after the header and the device properties


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """One run with what a comparison looks at beside its times."""

    observation: Observation
    outputs: tuple[SavedOutput, ...] = ()
    ranks: tuple[RankReport, ...] = ()


def compare_files(
    base: Sequence[Path],
    news: Sequence[Sequence[Path]],
    *,
    anyway: bool = False,
    read_trace: TraceReports = report_trace,
) -> CompareReport:
    """Compare every new side with the base; the paths of a side are repeated runs of one thing.

    Raises:
        UnreadableInputError: a path is no dump, run folder or trace.
        UsageError: the runs are unlike, and ``anyway`` was not given.

    """
    left = [run for path in base for run in load_runs(path, read_trace)]
    labels = _labels([list(base), *(list(paths) for paths in news)])
    base_cohort = _cohort(labels[0], left)
    comparisons = []
    for label, paths in zip(labels[1:], news, strict=True):
        right = [run for path in paths for run in load_runs(path, read_trace)]
        result = _with_details(compare(base_cohort, _cohort(label, right)), left, right)
        comparisons.append(result if anyway else withhold_verdicts(result, side_of(base_cohort)))
    if not anyway:
        _refuse_unlike(comparisons)
    return CompareReport(
        schema_version=COMPARE_SCHEMA_VERSION, base=side_of(base_cohort), comparisons=tuple(comparisons)
    )


def limit_reasons(report: CompareReport, limit: float) -> tuple[str, ...]:
    """Why the new sides break ``limit`` (0.05: 5 % slower end to end); none where all keep it."""
    reasons = (fails_above(comparison, limit) for comparison in report.comparisons)
    return tuple(reason for reason in reasons if reason)


def load_runs(path: Path, read_trace: TraceReports) -> tuple[LoadedRun, ...]:
    """The runs of a file or a folder: a folder holds one or several runs with their traces."""
    if path.is_dir():
        return _from_folder(path, read_trace)
    if is_trace(path):
        return (_from_trace(path, read_trace),)
    return tuple(
        LoadedRun(
            observation=observe(summarise(dump, path=str(path))),
            outputs=saved_outputs(dump.outputs, near=path.parent),
        )
        for dump in read_perf_dumps(path)
    )


def is_trace(path: Path) -> bool:
    """Whether a file is a trace rather than a dump, by its name or else its beginning."""
    if path.name.endswith(_TRACE_SUFFIXES):
        return True
    try:
        with path.open("rb") as stream:
            head = stream.read(_SNIFFED_BYTES)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as stream:
                head = stream.read(_SNIFFED_BYTES)
    except (OSError, EOFError):
        return False  # the dump reader says what is wrong
    return b'"traceEvents"' in head or head.startswith(b"SQLite format 3\0")


def _from_folder(folder: Path, read_trace: TraceReports) -> tuple[LoadedRun, ...]:
    dumps = sorted(path for path in folder.glob("*.json") if path.name.startswith("perf"))
    traces = sorted(path for path in folder.rglob("*") if path.name.endswith(_TRACE_SUFFIXES))
    if not dumps:
        raise UnreadableInputError(
            f"{folder} holds no perf dump (perf.json).",
            remedy="Give a folder written with --run-dir, or the files themselves.",
        )
    runs = [run for path in dumps for run in load_runs(path, read_trace)]
    ranks = tuple(rank for path in traces[:1] for rank in read_trace(path))
    return (replace(runs[0], ranks=ranks), *runs[1:])


def _from_trace(path: Path, read_trace: TraceReports) -> LoadedRun:
    ranks = tuple(read_trace(path))
    if not ranks:
        raise UnreadableInputError(f"{path} holds no rank with GPU work.")
    return LoadedRun(observation=observe_trace(ranks[0]), ranks=ranks)


def _cohort(label: str, runs: Sequence[LoadedRun]) -> Cohort:
    if not runs:
        raise UsageError(f"{label} holds no run.", remedy="Give at least one perf dump or trace a side.")
    return Cohort(label=label, runs=tuple(run.observation for run in runs))


def _with_details(
    comparison: Comparison, left: Sequence[LoadedRun], right: Sequence[LoadedRun]
) -> Comparison:
    facts = (left[0].observation.facts, right[0].observation.facts)
    return replace(
        comparison,
        quality=quality_rows([run.outputs for run in left], [run.outputs for run in right], facts),
        kernels=_kernels(left, right),
    )


def _kernels(left: Sequence[LoadedRun], right: Sequence[LoadedRun]) -> KernelComparison | None:
    """Kernels of the first traced run of each side, same rank."""
    base = next((run.ranks[0] for run in left if run.ranks), None)
    new = next((run.ranks[0] for run in right if run.ranks), None)
    return compare_kernels(base, new) if base is not None and new is not None else None


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
    for depth in (1, 2, 3):
        labels = ["/".join(path.parts[-depth:]) for path in first]
        if len(set(labels)) == len(labels):
            break
    else:
        labels = [str(path) for path in first]
    return [
        label if len(paths) < 2 else f"{label} and {len(paths) - 1} more"
        for label, paths in zip(labels, sides, strict=True)
    ]
