"""A sweep over a grid: resumable, one row a point, whatever becomes of the point."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stepscope.model.errors import RunFailedError
from stepscope.model.sweep import SweepPoint, SweepRow
from stepscope.model.vocabulary import Word
from stepscope.record.atomic import cannot_write, check_writable
from stepscope.record.json_lines import append_line, check_appendable, read_lines
from stepscope.session.sweeping.point_runner import PointRunner, PointTask, RunnerOptions

ROWS_FILE = "sweep.jsonl"
LOCK_FILE = "sweep.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What is varied; an empty axis is not."""

    prompts: tuple[str, ...] = ()
    resolutions: tuple[tuple[int, int], ...] = ()  # width, height
    steps: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()
    variants: tuple[str, ...] = ("",)  # further flags, as text

    def points(self) -> tuple[SweepPoint, ...]:
        """Every combination, those of one variant together: they share a loaded pipeline."""
        axes = itertools.product(
            self.variants,
            self.resolutions or (None,),
            self.frames or (None,),
            self.steps or (None,),
            self.prompts or (None,),
        )
        points = (
            SweepPoint(
                prompt=prompt,
                width=size[0] if size else None,
                height=size[1] if size else None,
                steps=steps,
                frames=frames,
                variant=variant,
            )
            for variant, size, frames, steps, prompt in axes
        )
        return tuple(dict.fromkeys(points))


Flags = Callable[[SweepPoint], Mapping[str, Any]]
"""The flags of generate for a point."""


class Again(Word):
    """Finished points that are measured again all the same; the newest row of a point counts."""

    FAILED = "failed"  # out of memory included
    UNTRUSTED = "untrusted"
    FEWER = "fewer"  # measured runs than are asked for now


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What to measure and where the rows are."""

    grid: Grid
    flags: Flags
    runner: RunnerOptions
    repeats: int = 2
    again: frozenset[Again] = frozenset()


class SweepListener(Protocol):
    """Told what the sweep is busy with."""

    def doing(self, text: str) -> None:
        """One line, replaced by the next."""

    def happened(self, text: str) -> None:
        """One line that stays."""


class Executor(Protocol):
    """Something that can run points."""

    def run(self, tasks: Sequence[PointTask], finished: Callable[[SweepRow], None]) -> None:
        """Run every task and report each as soon as it is done, from the calling thread."""


class LocalExecutor:
    """One point after the other, in this machine's order."""

    def __init__(self, options: RunnerOptions) -> None:
        self._options = options

    def run(self, tasks: Sequence[PointTask], finished: Callable[[SweepRow], None]) -> None:
        """Run the tasks on one worker process. UsageError where none of them can run."""
        runner = PointRunner(self._options)
        try:
            runner.check(tasks)
            for task in tasks:
                finished(runner.run(task))
        finally:
            runner.close()


def sweep(options: SweepOptions, executor: Executor, listener: SweepListener) -> tuple[SweepRow, ...]:
    """Measure every point that has no row yet, and return the rows of the whole grid in its order.

    A row is on the disk before the next point begins, so a killed sweep goes on where it stopped.

    Raises:
        UnreadableInputError: the folder's rows are none of ours.
        RunFailedError: the folder cannot be written, or another sweep is at work in it.

    """
    folder = options.runner.folder
    path = folder / ROWS_FILE
    tasks = planned(options)
    if left_out := len(options.grid.points()) - len(tasks):
        listener.doing(f"{left_out} points of the grid are calls that others make too: each is measured once")
    with _only_one(folder):
        rows = _finished(read_lines(path, SweepRow), options)
        for text in _kept_as_they_are([rows[task.id] for task in tasks if task.id in rows], options):
            listener.happened(text)
        check_appendable(path)
        left = [task for task in tasks if task.id not in rows]
        if len(left) < len(tasks):
            listener.doing(f"{len(tasks) - len(left)} of {len(tasks)} points are there already")

        def finished(row: SweepRow) -> None:
            if row.status == "failed":
                check_writable(folder)  # a full disk fails every point: that is our end, not a row of each
            append_line(path, row)
            rows[row.id] = row
            done = sum(task.id in rows for task in tasks)
            tell = listener.doing if row.status == "ok" else listener.happened
            tell(f"{done} of {len(tasks)}: {_said(row)}")

        if left:
            executor.run(left, finished)
    return tuple(rows[task.id] for task in tasks if task.id in rows)


def planned(options: SweepOptions) -> tuple[PointTask, ...]:
    """One task for each different call that the grid's points make, in the grid's order."""
    tasks = [
        PointTask(point=point, flags=options.flags(point), repeats=options.repeats)
        for point in options.grid.points()
    ]
    return tuple({task.id: task for task in reversed(tasks)}.values())[::-1]


def _finished(found: Sequence[SweepRow], options: SweepOptions) -> dict[str, SweepRow]:
    """Rows by point; the last one counts. Those that are to be measured again are forgotten."""
    rows = {row.id: row for row in found}
    return {key: row for key, row in rows.items() if not _shortcomings(row, options) & options.again}


def _shortcomings(row: SweepRow, options: SweepOptions) -> set[Again]:
    if row.status != "ok":
        return {Again.FAILED}
    found = {Again.UNTRUSTED} if row.untrusted else set()
    return found | ({Again.FEWER} if len(row.runs_ms) < options.repeats else set())


def _kept_as_they_are(rows: Sequence[SweepRow], options: SweepOptions) -> Iterator[str]:
    """What finished rows lack of what is asked for now, and the option that measures them again."""
    said = {
        Again.FAILED: "that failed",
        Again.UNTRUSTED: "with untrusted numbers",
        Again.FEWER: f"of fewer measured runs than --repeats {options.repeats}",
    }
    for kind, words in said.items():
        count = sum(kind in _shortcomings(row, options) for row in rows)
        if count:
            yield f"finished points {words}: {count}, kept (--again {kind.value} measures them anew)"


def _said(row: SweepRow) -> str:
    if row.total_ms is not None:
        return f"{row.point.label}: {row.total_ms:.1f} ms"
    return f"{row.point.label}: {row.status.replace('_', ' ')}: {row.error}"


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the process dies, however it dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return  # Windows: two sweeps in one folder are the user's care
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RunFailedError(
            f"another sweep is at work in {folder}.", remedy="Wait for it, or give another --dir."
        ) from error
