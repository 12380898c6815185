"""Runs the points of a sweep on a Ray cluster: one actor a GPU, each with a worker process of its own."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from stepscope.model.errors import RunFailedError, UsageError
from stepscope.model.sweep import SweepRow
from stepscope.session.sweeping.point_runner import (
    ATTEMPTS,
    PointRunner,
    PointTask,
    RunnerOptions,
    failed_row,
)

_PATIENCE_S = 10


class RayExecutor:
    """Hands points to actors as they become free. An actor that dies is replaced, its point tried again.

    Every node needs stepscope and the model; dumps are written to the same path on whichever node ran a
    point, rows by this process alone.
    """

    def __init__(
        self, options: RunnerOptions, *, address: str | None = None, workers: int | None = None
    ) -> None:
        self._options = replace(options, folder=options.folder.absolute())  # workers run in others
        self._address = address
        self._workers = workers

    def run(self, tasks: Sequence[PointTask], finished: Callable[[SweepRow], None]) -> None:
        """Run the tasks on the cluster.

        Raises:
            UsageError: Ray is not installed, or there is no cluster at the address.

        """
        ray = _connected(self._address)
        there = ray.cluster_resources()
        gpus = int(there.get("GPU", 0))
        most = max(gpus or int(there.get("CPU", 1)), 1)  # one more would wait for ever, and its point
        count = min(self._workers or max(gpus, 1), most, len(tasks))
        resources = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        pool = _Pool(ray, self._options, resources)
        try:
            pool.work(tasks, count, finished)
        finally:
            pool.close()


class _Pool:
    """The actors, and which of them is at which task."""

    def __init__(self, ray: Any, options: RunnerOptions, resources: dict[str, int]) -> None:
        self._ray = ray
        self._options = options
        self._actor = ray.remote(max_restarts=0, **resources)(PointRunner)
        self._actors: list[Any] = []

    def work(self, tasks: Sequence[PointTask], count: int, finished: Callable[[SweepRow], None]) -> None:
        """Keep ``count`` actors busy until every task has its row."""
        waiting = [(task, 1) for task in tasks]
        running: dict[Any, tuple[Any, PointTask, int]] = {}
        idle = [self._new() for _ in range(count)]
        while waiting or running:
            while waiting and idle:
                actor = idle.pop()
                task, attempt = waiting.pop(0)
                running[actor.run.remote(task)] = (actor, task, attempt)
            (ready, *_), _ = self._ray.wait(list(running), num_returns=1)
            actor, task, attempt = running.pop(ready)
            row = self._result(ready)
            if row is not None:
                idle.append(actor)
                finished(replace(row, attempts=row.attempts + attempt - 1))
                continue
            self._actors.remove(actor)
            idle.append(self._new())
            if attempt < ATTEMPTS:
                waiting.insert(0, (task, attempt + 1))
            else:
                finished(failed_row(task, "failed", "its Ray worker died each time", attempt))

    def close(self) -> None:
        """End every actor; its worker process ends with it."""
        for actor in self._actors:
            self._ray.kill(actor)

    def _new(self) -> Any:
        actor = self._actor.remote(self._options)
        self._actors.append(actor)
        return actor

    def _result(self, reference: Any) -> SweepRow | None:
        """The row, or None where the actor died."""
        try:
            row: SweepRow = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            return None
        except self._ray.exceptions.RayTaskError as error:
            raise RunFailedError(f"a worker on the cluster failed: {error.cause}.") from error
        return row


def _connected(address: str | None) -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--executor ray needs Ray, which is not installed.", remedy='pip install "stepscope[ray]"'
        ) from error
    if not ray.is_initialized():
        try:
            _check_reachable(address)
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"there is no Ray cluster at {address}: {error}.", remedy="Check --ray-address."
            ) from error
    return ray


def _check_reachable(address: str | None) -> None:
    """Ray itself tries for minutes. OSError where nobody listens at ``host:port``."""
    place = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d{1,5})", address or "")
    if place:
        socket.create_connection((place[1], int(place[2])), timeout=_PATIENCE_S).close()
