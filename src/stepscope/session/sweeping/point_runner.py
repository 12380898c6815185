"""Runs the points of a sweep one after the other on one worker process, and starts a new one when needed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from stepscope.analyse.comparison.cohort import whole_number
from stepscope.analyse.results import RunSummary
from stepscope.analyse.run.summarise import summarise
from stepscope.model.errors import StepscopeError, UnreadableInputError, UsageError
from stepscope.model.sweep import SweepPoint, SweepRow
from stepscope.record.atomic import free_path
from stepscope.record.perf_dump_reader import read_perf_dump
from stepscope.session.sweeping.worker_client import WORKER_COMMAND, WorkerClient, WorkerDied
from stepscope.session.sweeping.worker_messages import Failure

ATTEMPTS = 2
"""A point whose process is killed is tried once more: the kill may have been meant for something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointTask:
    """A point with everything that it takes to run it."""

    point: SweepPoint
    flags: Mapping[str, Any]  # of generate
    repeats: int  # measured runs, after the first use of a shape

    @property
    def id(self) -> str:
        """A name that the same flags always have, so that rows of another call are not taken for ours."""
        text = json.dumps(dict(self.flags), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """Where files go, and which program is the worker."""

    folder: Path
    worker_command: Sequence[str] = WORKER_COMMAND


class _PointFailedError(StepscopeError):
    """The pipeline refused this point."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PointRunner:
    """Keeps one pipeline loaded as long as points need the same one."""

    def __init__(self, options: RunnerOptions) -> None:
        self._options = options
        self._worker: WorkerClient | None = None
        self._variant: str | None = None
        self._shapes: set[tuple[Any, ...]] = set()

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id while there is one."""
        return self._worker.pid if self._worker else None

    def run(self, task: PointTask) -> SweepRow:
        """Measure one point. Whatever happens to it is a row; only our own mistakes are exceptions."""
        for attempt in range(1, ATTEMPTS + 1):
            row, died = self._attempt(task, attempt)
            if not died:
                break
        return row

    def check(self, tasks: Sequence[PointTask]) -> None:
        """Load what the first task needs and show it the flags of all tasks that share it.

        Raises:
            UsageError: the pipeline cannot be had, or takes none of them. Any other failure is the first
                point's own and comes again as its row.

        """
        sharing = [task for task in tasks if task.point.variant == tasks[0].point.variant]
        try:
            worker = self._ready(tasks[0])
            failures = [worker.ask("check", task.flags) for task in sharing]
        except _PointFailedError as error:
            failures = [error.failure]
        except WorkerDied:
            self.close()
            return
        refused = [failure.message for failure in failures if failure is not None and failure.refused]
        if len(refused) == len(failures):
            raise UsageError(f"no point can run: {refused[0]}")

    def _attempt(self, task: PointTask, attempt: int) -> tuple[SweepRow, bool]:
        """A row, and whether it is one only because the worker process ended."""
        try:
            return self._measured(task, attempt), False
        except WorkerDied as death:
            self.close()
            return failed_row(task, "failed", str(death), attempt), True
        except _PointFailedError as error:
            if not error.failure.usable_after:
                self.close()
            status = "out_of_memory" if error.failure.out_of_memory else "failed"
            return failed_row(task, status, error.message, attempt), False
        except UnreadableInputError as error:  # it says that it ran, and left nothing
            self.close()
            return failed_row(task, "failed", error.message, attempt), False

    def close(self) -> None:
        """End the worker process."""
        if self._worker is not None:
            self._worker.close()
        self._worker, self._variant = None, None
        self._shapes.clear()

    def _measured(self, task: PointTask, attempt: int) -> SweepRow:
        worker = self._ready(task)
        shape = _shape(task.flags)
        first_in_process, first_of_shape = not self._shapes, shape not in self._shapes
        first = self._run(worker, task, "first") if first_of_shape else None
        self._shapes.add(shape)
        runs = [self._run(worker, task, str(repeat)) for repeat in range(task.repeats)]
        return _row(task, runs, first, attempt=attempt, first_in_process=first_in_process)

    def _ready(self, task: PointTask) -> WorkerClient:
        if self._worker is None or self._variant != task.point.variant:
            self.close()
            self._worker = WorkerClient(
                self._options.folder / "worker.log", command=self._options.worker_command
            )
            _check(self._worker.ask("load", task.flags))
            self._variant = task.point.variant
        return self._worker

    def _run(self, worker: WorkerClient, task: PointTask, name: str) -> RunSummary:
        dump = free_path(self._options.folder / "dumps" / f"{task.id}-{name}.json")
        ours = {"perf_dump_path": str(dump), "warmup": False}  # the first use of a shape is our warm-up
        defaults = {"save_output": False, "output_path": str(self._options.folder / "outputs")}
        _check(worker.ask("run", {**defaults, **task.flags, **ours}))
        return summarise(read_perf_dump(dump), path=str(dump))


def _shape(flags: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides the shapes of a call; the number of steps does not."""
    return tuple(flags.get(name) for name in ("width", "height", "num_frames", "num_outputs_per_prompt"))


def _check(failure: Failure | None) -> None:
    if failure is not None:
        raise _PointFailedError(failure)


def _row(
    task: PointTask,
    runs: Sequence[RunSummary],
    first: RunSummary | None,
    *,
    attempt: int,
    first_in_process: bool,
) -> SweepRow:
    total_ms = median(run.total_ms for run in runs)
    facts = dict(runs[0].workload)
    names = dict.fromkeys(stage.name for run in runs for stage in run.stages)
    steps = [run.step_statistics.median_ms for run in runs if run.step_statistics]
    peaks = [run.peak_memory_bytes for run in runs if run.peak_memory_bytes is not None]
    return SweepRow(
        id=task.id,
        point=task.point,
        status="ok",
        attempts=attempt,
        runs_ms=tuple(run.total_ms for run in runs),
        total_ms=total_ms,
        first_use_ms=None if first is None else first.total_ms - total_ms,
        first_in_process=first_in_process,
        stages_ms={name: median(_stage_ms(run, name) for run in runs) for name in names},
        step_ms=median(steps) if steps else None,
        peak_memory_bytes=max(peaks, default=None),
        width=whole_number(facts.get("width")),
        height=whole_number(facts.get("height")),
        frames=whole_number(facts.get("frames")),
        steps=whole_number(facts.get("steps")),
        device=dict(runs[0].environment).get("device_name", ""),
        untrusted=tuple(dict.fromkeys(reason for run in runs for reason in run.trust.reasons)),
        random_weights=facts.get("load_format") == "dummy",
        dumps=tuple(run.path for run in runs if run.path),
        finished_unix_ns=time.time_ns(),
    )


def failed_row(task: PointTask, status: str, error: str, attempt: int) -> SweepRow:
    return SweepRow(
        id=task.id,
        point=task.point,
        status=status,
        error=error,
        attempts=attempt,
        finished_unix_ns=time.time_ns(),
    )


def _stage_ms(run: RunSummary, name: str) -> float:
    return sum(stage.duration_ms for stage in run.stages if stage.name == name)
