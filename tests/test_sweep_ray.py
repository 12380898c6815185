"""The same sweep on a real local Ray cluster, with one of its workers killed. Skipped where Ray is absent."""

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from stepscope.model.errors import RunFailedError
from stepscope.model.sweep import SweepRow
from stepscope.record.json_lines import read_lines
from stepscope.session.sweeping.ray_executor import RayExecutor, _check_reachable
from stepscope.session.sweeping.sweep import Grid, sweep
from sweeps import TWELVE, Silent, options

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
    assert [row.attempts for row in rows if row.attempts > 1] == [2]  # the point that it was at
    written = read_lines(path, SweepRow)
    assert len(written) == 12
    assert {row.point for row in written} == set(TWELVE.points())


def test_more_workers_than_there_is_room_for_do_not_wait_for_ever(tmp_path, monkeypatch) -> None:
    """Fifty workers on two processors are two; a relative folder is the same one for every worker."""
    monkeypatch.chdir(tmp_path)
    asked = options(Path("sweep"), TWELVE)
    rows = sweep(asked, RayExecutor(asked.runner, workers=50), Silent())
    assert [row.status for row in rows] == ["ok"] * 12
    assert len(list((tmp_path / "sweep" / "dumps").glob("*.json"))) > 12
    assert all(Path(dump).is_file() for row in rows for dump in row.dumps)


def test_a_worker_that_cannot_write_ends_the_sweep_with_its_reason(tmp_path) -> None:
    """On a node without the folder every point would fail; no point is a row for that."""
    (tmp_path / "worker.log").mkdir()
    asked = options(tmp_path, TWELVE)
    with pytest.raises(RunFailedError, match="worker on the cluster failed: cannot write"):
        sweep(asked, RayExecutor(asked.runner, workers=1), Silent())
    assert read_lines(tmp_path / "sweep.jsonl", SweepRow) == ()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1"])
def test_a_cluster_that_is_not_there_is_said_at_once(address) -> None:
    """Ray itself tries for minutes."""
    with pytest.raises(OSError, match=r"refused|assign|unreachable"):
        _check_reachable(address)


def test_accidents_on_ray_are_rows(tmp_path) -> None:
    """Out of memory and a process that always dies are rows here as they are locally."""
    grid = Grid(resolutions=((256, 13), (256, 17), (256, 256)))
    asked = options(tmp_path, grid)
    rows = sweep(asked, RayExecutor(asked.runner, workers=2), Silent())
    assert [row.status for row in rows] == ["out_of_memory", "failed", "ok"]
