"""The runs in a file, whichever record it is: a perf dump, SGLang's performance.log or a run record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stepscope.analyse.run.reconcile import reconcile
from stepscope.model.dump import PerfDump
from stepscope.record.perf_dump_reader import read_perf_dumps
from stepscope.record.recognise import InputKind, recognise
from stepscope.record.run_record import read_run

RUN_KINDS = frozenset({InputKind.PERF_DUMP, InputKind.RUN_RECORD})


def read_dumps(path: Path) -> tuple[PerfDump, ...]:
    """Every run in a file, as perf dumps.

    Raises:
        UnreadableInputError: nothing in it can be read as a run.

    """
    if recognise(path) is InputKind.RUN_RECORD:
        return (reconcile(read_run(path)),)
    return read_perf_dumps(path)


def without_repeated_runs(files: Iterable[tuple[Path, InputKind]]) -> list[tuple[Path, InputKind]]:
    """The files of a folder without the run records that stand beside a perf dump: they are the same run."""
    listed = list(files)
    dumped = {path.parent for path, kind in listed if kind is InputKind.PERF_DUMP}
    return [
        (path, kind) for path, kind in listed if kind is not InputKind.RUN_RECORD or path.parent not in dumped
    ]
