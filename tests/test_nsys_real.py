"""A real nsys (Debian's, which runs without a GPU: .ci/install-nsys) on tiny/qwen-image."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.model.vocabulary import TraceSource
from stepscope.record.nsight.reader import read_nsight

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nsys") is None, reason="no nsys on this machine: .ci/install-nsys"),
]

UNDERSTOOD, TOO_NEW = "0.2.11", "0.2.17"
"""Versions of the nvtx package that Nsight Systems 2022.4 and 2023.4 do and do not record."""


@pytest.fixture(scope="module")
def nvtx_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A folder for PYTHONPATH with this version of nvtx; empty where it is the installed one."""

    def folder(version: str) -> str:
        if importlib.metadata.version("nvtx") == version:
            return ""
        target = tmp_path_factory.mktemp(f"nvtx-{version}")
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
        done = subprocess.run([*command, f"nvtx=={version}"], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"pip cannot install nvtx {version} here")
        return str(target)

    return folder


def nsys(folder: Path, nvtx: str, *words: str) -> subprocess.CompletedProcess[str]:
    """``stepscope nsys`` in ``folder``, with an environment that must not be kept."""
    paths = [nvtx, str(Path(__file__).parent.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "API_TOKEN_OF_MINE": "planted-secret",
        "CUDA_VISIBLE_DEVICES": "",
    }
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-m", "stepscope", "nsys", *words],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        if "failed at its start" not in done.stderr:  # nsys 2022.4 does at times, on a busy machine
            break
    return done


@pytest.fixture(scope="module")
def steps_3_to_4(
    tmp_path_factory: pytest.TempPathFactory, nvtx_folder: Callable[[str], str]
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Steps 3:5 of 8, with a warm-up before and a decoder after."""
    folder = tmp_path_factory.mktemp("nsys")
    done = nsys(
        folder, nvtx_folder(UNDERSTOOD), "--steps", "3:5", "-o", "out/denoising", "--trace", "nvtx", "--",
        "generate", "--model-path", "tiny/qwen-image", "--prompt", "a", "--seed", "0", "--no-save-output",
        "--num-inference-steps", "8", "--true-cfg-scale", "4", "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "out", done


def ranges(database: Path) -> list[tuple[str, int, int]]:
    """Name, start and end of every range, in order of start."""
    with sqlite3.connect(database) as connection:
        return connection.execute(
            "SELECT COALESCE(text, value), start, end FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId "
            "WHERE eventType IN (59, 60) ORDER BY start"
        ).fetchall()


def test_exactly_the_steps_asked_for_are_captured(
    steps_3_to_4: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """Steps 3 and 4 whole, nothing of the warm-up, of other steps or of other stages."""
    folder, _ = steps_3_to_4
    names = [name for name, _, _ in ranges(folder / "denoising.sqlite")]
    step = ["forward_transformer_cond", "forward_transformer_uncond", "scheduler_step"]
    assert names == [
        "stepscope_capture", "DenoisingStage", "denoising_step_3", *step, "denoising_step_4", *step
    ]  # fmt: skip
    assert (folder / "denoising.nsys-rep").stat().st_size > 0


def test_the_ranges_nest(steps_3_to_4: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Capture > stage > step > forward, and the steps one after the other."""
    folder, _ = steps_3_to_4
    capture, stage, *rest = ranges(folder / "denoising.sqlite")
    steps = [one for one in rest if one[0].startswith("denoising_step")]
    inner = [one for one in rest if one not in steps]
    assert capture[1] <= stage[1] <= stage[2] <= capture[2]
    assert all(stage[1] <= one[1] <= one[2] <= stage[2] for one in steps)
    assert steps[0][2] <= steps[1][1]
    for at, step in enumerate(steps):
        assert all(step[1] <= one[1] <= one[2] <= step[2] for one in inner[3 * at : 3 * at + 3])


def test_the_report_is_explained_at_once(
    steps_3_to_4: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """Stage and steps on standard output; the files and what they hold on standard error."""
    folder, done = steps_3_to_4
    assert "Steps in the trace" in done.stdout
    assert "DenoisingStage" in done.stdout.rpartition("Stages in the trace")[2]
    assert f"report: {folder / 'denoising.nsys-rep'}" in done.stderr
    assert "holds the environment variables" in done.stderr
    assert "warning" not in done.stderr
    trace = read_nsight(folder / "denoising.sqlite")
    assert trace.source is TraceSource.NSIGHT_SYSTEMS
    assert trace.annotations.ours.all()


def test_the_kept_export_holds_no_environment(
    steps_3_to_4: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """Neither the process's variables nor those of others; the report itself, which is nsys's, does."""
    folder, _ = steps_3_to_4
    export = (folder / "denoising.sqlite").read_bytes()
    for text in (b"planted-secret", b"API_TOKEN_OF_MINE", b"PYTHONPATH=", b"PATH=/"):
        assert text not in export


def test_an_nvtx_package_that_is_too_new_is_told(tmp_path: Path, nvtx_folder: Callable[[str], str]) -> None:
    """Such a range opens no capture, and nsys exits with 0: we find out and name the remedy."""
    program = (
        "import nvtx, time; time.sleep(0.6); "
        "nvtx.end_range(nvtx.start_range('stepscope_capture', domain='stepscope')); time.sleep(0.6)"
    )
    words = ("--trace", "nvtx", "--steps", "0:1", "-o", "x", "--", sys.executable, "-c", program)
    done = nsys(tmp_path, nvtx_folder(TOO_NEW), *words)
    assert done.returncode == 1
    assert "Generated:" in done.stdout
    assert "nvtx==0.2.11" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_command_of_ones_own_that_nothing_observes(
    tmp_path: Path, nvtx_folder: Callable[[str], str]
) -> None:
    """Recorded whole without a window; with one, nothing opens it, and the message says what does."""
    program = "import nvtx, time; time.sleep(0.6); nvtx.push_range('mine'); nvtx.pop_range(); time.sleep(0.6)"
    command = (sys.executable, "-c", program)
    nvtx = nvtx_folder(UNDERSTOOD)
    done = nsys(tmp_path, nvtx, "--trace", "nvtx", "-o", "whole", "--", *command)
    assert done.returncode == 0, done.stderr
    assert [name for name, _, _ in ranges(tmp_path / "whole.sqlite")] == ["mine"]
    done = nsys(tmp_path, nvtx, "--trace", "nvtx", "--steps", "1:2", "-o", "none", "--", *command)
    assert done.returncode == 1
    assert "stepscope run" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_commands_own_status_is_passed_on(tmp_path: Path, nvtx_folder: Callable[[str], str]) -> None:
    """A command that fails after the capture leaves a report and its status."""
    program = (
        "import nvtx, sys, time; time.sleep(0.6); nvtx.push_range('mine'); nvtx.pop_range(); "
        "time.sleep(0.6); sys.exit(3)"
    )
    words = ("--trace", "nvtx", "-o", "failed", "--", sys.executable, "-c", program)
    done = nsys(tmp_path, nvtx_folder(UNDERSTOOD), *words)
    assert done.returncode == 3
    assert (tmp_path / "failed.nsys-rep").exists()


def test_a_script_of_the_users_own_needs_no_change(tmp_path: Path, nvtx_folder: Callable[[str], str]) -> None:
    """Under run, steps 1:3 of its pipeline call are captured."""
    (tmp_path / "script.py").write_text(
        "from stepscope.workload.load import load\n"
        "from stepscope.workload.request import LoadRequest\n"
        "pipe = load(LoadRequest(model='tiny/qwen-image')).pipeline\n"
        "pipe('a', num_inference_steps=4, true_cfg_scale=4.0, negative_prompt=' ', height=64, width=64)\n"
    )
    words = ("--trace", "nvtx", "--steps", "1:3", "-o", "mine", "--", "run", "script.py")
    done = nsys(tmp_path, nvtx_folder(UNDERSTOOD), *words)
    assert done.returncode == 0, done.stderr
    names = [name for name, _, _ in ranges(tmp_path / "mine.sqlite")]
    assert [name for name in names if name.startswith("denoising")] == [
        "denoising_step_1",
        "denoising_step_2",
    ]
    assert names[:2] == ["stepscope_capture", "DenoisingStage"]
