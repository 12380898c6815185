"""Sweeps of the fake worker: the grid of twelve points, how it is run, and its file of rows."""

import os
import sys
import time
from pathlib import Path

from stepscope.model.sweep import SweepPoint, SweepRow
from stepscope.session.sweeping.point_runner import RunnerOptions
from stepscope.session.sweeping.sweep import Grid, LocalExecutor, SweepOptions, sweep

TESTS = Path(__file__).parent
FAKE = (sys.executable, str(TESTS / "fake_worker.py"))
TWELVE = Grid(prompts=("a", "b"), resolutions=((256, 256), (512, 256), (512, 512)), steps=(4, 8))


class Silent:
    def doing(self, text):
        pass

    happened = doing


def flags_of(point):
    return {
        "prompt": point.prompt or "p", "width": point.width or 256, "height": point.height or 256,
        "num_inference_steps": point.steps or 4,
    }  # fmt: skip


def worker(folder, *, duration="0", held_from=None):
    """The command of a worker whose runs take ``duration`` seconds.

    Once the folder has ``held_from`` rows, a run lasts until the worker is killed: however slow the one who
    watches is, the sweep has not ended meanwhile.
    """
    held = () if held_from is None else (str(folder / "sweep.jsonl"), str(held_from))
    return (*FAKE, duration, *held)


def options(folder, grid, *, duration="0", held_from=None, **changes):
    command = worker(folder, duration=duration, held_from=held_from)
    runner = RunnerOptions(folder=folder, worker_command=command)
    return SweepOptions(grid=grid, flags=flags_of, runner=runner, **changes)


def run(folder, grid, **changes):
    asked = options(folder, grid, **changes)
    return sweep(asked, LocalExecutor(asked.runner), Silent())


def rows_in(path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def signal_when(process, path, count, number):
    """Send the signal to the process as soon as the file has ``count`` lines."""
    while len(rows_in(path)) < count:
        assert process.poll() is None, "the sweep ended before it got the signal"
        time.sleep(0.005)
    os.kill(process.pid, number)


def row(tokens_side, *, steps=4, stages, **changes) -> SweepRow:
    point = SweepPoint(width=tokens_side, height=16, steps=steps)
    return SweepRow(
        id=str(point), point=point, status="ok", total_ms=sum(stages.values()), stages_ms=stages,
        step_ms=stages.get("DenoisingStage", 1.0 * steps) / steps,
        width=tokens_side, height=16, steps=steps, **changes,
    )  # fmt: skip
