"""The same sweep on a real local Ray cluster, with one of its workers killed. Skipped where Ray is absent."""

import os
import signal
import threading
import time

import psutil
import pytest

from stepscope.model.sweep import SweepRow
from stepscope.record.json_lines import read_lines
from stepscope.session.sweeping.ray_executor import RayExecutor
from stepscope.session.sweeping.sweep import Grid, sweep
from test_sweep import TWELVE, Silent, options

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """A local cluster of two processors, without accelerators."""
    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def busy_workers() -> list[int]:
    """Processes of this cluster that are at a point right now."""
    children = psutil.Process().children(recursive=True)
    return [each.pid for each in children if each.name().startswith("ray::PointRunn")]


def kill_one_when(path, count, killed):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and len(path.read_bytes().splitlines()) >= count and (found := busy_workers()):
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[0])
            return
        time.sleep(0.01)


def test_a_killed_worker_costs_no_point(tmp_path) -> None:
    """Twelve points on two workers, one of them killed at work: exactly twelve rows, all measured."""
    asked = options(tmp_path, TWELVE, duration="0.2")
    path, killed = tmp_path / "sweep.jsonl", []
    thread = threading.Thread(target=kill_one_when, args=(path, 2, killed))
    thread.start()
    rows = sweep(asked, RayExecutor(asked.runner, workers=2), Silent())
    thread.join()
    assert killed
    assert [row.status for row in rows] == ["ok"] * 12
    written = read_lines(path, SweepRow)
    assert len(written) == 12
    assert {row.point for row in written} == set(TWELVE.points())


def test_accidents_on_ray_are_rows(tmp_path) -> None:
    """Out of memory and a process that always dies are rows here as they are locally."""
    grid = Grid(resolutions=((256, 13), (256, 17), (256, 256)))
    asked = options(tmp_path, grid)
    rows = sweep(asked, RayExecutor(asked.runner, workers=2), Silent())
    assert [row.status for row in rows] == ["out_of_memory", "failed", "ok"]
