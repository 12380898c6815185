"""``stepscope run`` on programs that call real pipelines: same picture, a record for every call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import programs

SCRIPT = '''
import hashlib, os, sys
assert not {"torch", "diffusers", "numpy", "transformers"} & set(sys.modules), "imported before the script"
os.environ["THE_SCRIPT_SET_THIS"] = "before torch"
import threading
import torch
import pipelines
from diffusers import StableDiffusionPipeline

class Mine(StableDiffusionPipeline):
    """A user's own class, defined after everything was imported."""
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)

def show(picture):
    print(hashlib.sha256(picture.tobytes()).hexdigest())

pipe = pipelines.stable_diffusion()
show(pipelines.sd(pipe, 3))
mine = Mine(**pipe.components, requires_safety_checker=False)
mine.set_progress_bar_config(disable=True)
show(pipelines.sd(mine, 4))
thread = threading.Thread(target=lambda: show(pipelines.sd(pipe, 2)))
thread.start()
thread.join()

def callback(pipeline, index, timestep, tensors):
    if index == 1:
        raise RuntimeError("enough")
    return {}

if "fail" in sys.argv:
    pipelines.sd(pipe, 3, callback_on_step_end=callback)
'''


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[programs.Ended, programs.Ended, Path]:
    """The program alone and observed, with the folder in which it ran."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "script.py").write_text(SCRIPT)
    alone = programs.python(["script.py", "fail"], folder)
    flags = ["--profile", "--call", "1", "--num-profiled-timesteps", "2"]
    under = programs.run([*flags, "--perf-dump-path", "out/perf.json", "script.py", "fail"], folder)
    return alone, under, folder


def dumps(folder: Path) -> list[dict[str, Any]]:
    paths = [folder / "out" / name for name in ("perf.json", "perf-1.json", "perf-2.json", "perf-3.json")]
    return [json.loads(path.read_text()) for path in paths]


def test_the_pictures_the_status_and_the_traceback_are_those_of_the_program_alone(ends: Any) -> None:
    """Three pictures to the bit, then the program's own exception without a frame of ours."""
    alone, under, _ = ends

    assert (under.status, under.out) == (alone.status, alone.out) == (1, alone.out)
    assert len(under.out.split()) == 3
    assert under.err.startswith(alone.err)
    assert "stepscope/" not in under.err.partition("RuntimeError: enough")[0]


def test_every_call_is_a_run_of_its_own(ends: Any) -> None:
    """A user's subclass, a call in a thread and one that fails too; each has its id, steps and seed."""
    records = dumps(ends[2])

    assert len({record["request_id"] for record in records}) == 4
    assert [len(record["denoise_steps_ms"]) for record in records] == [3, 4, 2, 2]
    assert [record["workload"]["pipeline_class"] for record in records] == [
        "StableDiffusionPipeline",
        "Mine",
        "StableDiffusionPipeline",
        "StableDiffusionPipeline",
    ]
    assert [record["workload"]["steps"] for record in records] == [3, 4, 2, 3]
    assert {record["workload"]["seed"] for record in records} == {0}
    assert records[3]["incomplete_reason"] == "RuntimeError: enough, in DenoisingStage, step 1"
    assert records[2]["warmup"]["requests"] == 1


def test_the_chosen_call_is_traced_and_no_other(ends: Any) -> None:
    """--call 1: one file, named after its request, with exactly two steps."""
    _, under, folder = ends
    records = dumps(folder)
    (trace,) = (folder / "logs").iterdir()

    assert trace.name == f"{records[1]['request_id']}-2_steps-global-rank0.trace.json.gz"
    assert [len(record["traces"]) for record in records] == [0, 1, 0, 0]
    assert f"Saved profiler traces to: {trace}" in under.err
    assert [step["traced"] for step in records[1]["denoise_steps_ms"]] == [True, True, True, False]


def test_the_summary_names_every_call_and_what_to_do_next(ends: Any) -> None:
    """After the traceback: a line a call, the files, the command."""
    _, under, folder = ends

    assert "4 pipeline calls observed" in under.err
    assert f"Metrics dumped to: {folder / 'out' / 'perf-3.json'}" in under.err
    assert "Next: stepscope report" in under.err


def test_torchrun_programs_leave_one_record_a_rank(tmp_path: Path) -> None:
    """RANK and WORLD_SIZE, as torchrun sets them, are in the names and in the records."""
    (tmp_path / "script.py").write_text("import pipelines\npipelines.sd(pipelines.stable_diffusion(), 2)\n")
    flags = ["--perf-dump-path", "perf.json", "script.py"]
    under = programs.run(flags, tmp_path, RANK="1", WORLD_SIZE="2")
    record = json.loads((tmp_path / "perf-rank1.json").read_text())

    assert under.status == 0
    assert (record["rank"], record["world_size"]) == (1, 2)
    assert "observed" not in under.err  # one rank speaks for all


def test_a_program_without_a_pipeline_call_says_so(tmp_path: Path) -> None:
    """In words, with the program's own exit status."""
    (tmp_path / "script.py").write_text("raise SystemExit(5)\n")
    under = programs.run(["--perf-dump-path", "perf.json", "script.py"], tmp_path)

    assert under.status == 5
    assert "no pipeline call was seen" in under.err
    assert not (tmp_path / "perf.json").exists()


MISTAKES = [
    (["missing.py"], "there is no script missing.py"),
    ([], "there is no script to run"),
    (["-m"], "there is no module to run"),
    (["-"], "cannot be read from standard input"),
    (["--call", "1", "script.py"], "--call traces nothing without --profile"),
    (["--profile", "--call", "x", "script.py"], "'x' is not a whole number"),
    (["--profile", "--call", "3:1", "script.py"], "'3:1' holds no call"),
    (["--profil", "script.py"], "Did you mean --profile?"),
    (["--perf-dump-path", ".", "script.py"], "is a folder"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES)
def test_a_mistake_is_one_line_and_the_program_does_not_run(
    words: list[str], said: str, tmp_path: Path
) -> None:
    """Status 2, no traceback, nothing of the program."""
    (tmp_path / "script.py").write_text("print('ran')\n")
    under = programs.run(words, tmp_path)

    assert (under.status, under.out) == (2, "")
    assert said in under.err
    assert "Traceback" not in under.err


def test_folders_archives_and_links_run_as_with_python(tmp_path: Path) -> None:
    """A folder or zip with __main__.py, a compiled file, and a link whose own folder is the import path."""
    import py_compile
    import zipfile

    source = "import sys, beside\nprint(sys.argv, __name__, beside.__name__)\n"
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__main__.py").write_text(source)
    (folder / "beside.py").touch()
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.write(folder / "__main__.py", "__main__.py")
        archive.write(folder / "beside.py", "beside.py")
    py_compile.compile(str(folder / "__main__.py"), cfile=str(folder / "compiled.pyc"))
    (tmp_path / "link.py").symlink_to(folder / "__main__.py")

    for program in ("app", "app.zip", "app/compiled.pyc", "link.py"):
        alone, under = programs.python([program, "x"], tmp_path), programs.run([program, "x"], tmp_path)
        assert (under.status, under.out, under.own_err) == (0, alone.out, alone.err), program
