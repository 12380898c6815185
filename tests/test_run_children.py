"""``stepscope run --children``: spawned, forked and executed processes have records of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import programs
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.attach_plan import AttachOptions
from stepscope.session.children import from_text, to_text
from stepscope.session.generate_options import ProfileOptions

SCRIPT = """
import multiprocessing
import subprocess
import sys

def work(steps):
    import pipelines
    print(pipelines.sd(pipelines.stable_diffusion(), steps).sum(), flush=True)

if __name__ == "__main__":
    for method, steps in (("spawn", 2), ("fork", 3)):
        process = multiprocessing.get_context(method).Process(target=work, args=(steps,))
        process.start()
        process.join()
        assert process.exitcode == 0
    again = "import pipelines; print(pipelines.sd(pipelines.stable_diffusion(), 4).sum(), flush=True)"
    subprocess.run([sys.executable, "-c", again], check=True)
    work(1)
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[programs.Ended, programs.Ended, Path]:
    folder = tmp_path_factory.mktemp("family")
    (folder / "script.py").write_text(SCRIPT)
    flags = ["--children", "--perf-dump-path", "out/perf.json"]
    return programs.python(["script.py"], folder), programs.run([*flags, "script.py"], folder), folder


def test_the_family_works_as_it_does_alone(ends: Any) -> None:
    """The same output of every process, the same status."""
    alone, under, _ = ends

    assert (under.status, under.out) == (alone.status, alone.out) == (0, alone.out)
    assert len(under.out.split()) == 4


def test_every_process_has_a_record(ends: Any) -> None:
    """The parent's under the name asked for, each child's under its process id; none over another's."""
    _, under, folder = ends
    records = {path.name: json.loads(path.read_text()) for path in (folder / "out").iterdir()}
    steps = {name: len(record["denoise_steps_ms"]) for name, record in records.items()}

    assert steps.pop("perf.json") == 1
    assert sorted(steps.values()) == [2, 3, 4]
    assert all(name.startswith("perf-pid") for name in steps)
    assert under.err.count("Written by a child process: ") == 3


def test_without_the_flag_children_are_left_alone(tmp_path: Path) -> None:
    """A forked one that calls a pipeline is told of the flag, once; others do not know of us."""
    script = SCRIPT.replace("    work(1)", "")
    script = script.replace('("spawn", 2), ("fork", 3)', '("fork", 1),').replace("    subprocess", "    #")
    script = script.replace("def work(steps):", "import pipelines\n\ndef work(steps):")
    (tmp_path / "script.py").write_text(script)
    under = programs.run(["--perf-dump-path", "perf.json", "script.py"], tmp_path)

    assert under.status == 0
    assert under.err.count("a forked process calls pipelines, which is not recorded: add --children") == 1
    assert list(tmp_path.glob("perf*.json")) == []


def test_records_of_children_need_a_place(tmp_path: Path) -> None:
    """They have no end of their own at which they could be shown."""
    (tmp_path / "script.py").touch()
    under = programs.run(["--children", "script.py"], tmp_path)

    assert under.status == 2
    assert "--children records into files, and none is asked for" in under.err


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    """Ours stands before it on the path and calls it."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'theirs ran'\n")
    (tmp_path / "script.py").write_text(
        "import os, subprocess, sys\n"
        f"os.environ['PYTHONPATH'] += os.pathsep + {str(tmp_path)!r}\n"
        "subprocess.run([sys.executable, '-c', 'print(theirs)'], check=True)\n"
    )
    under = programs.run(["--children", "--perf-dump-path", "perf.json", "script.py"], tmp_path)

    assert under.out == "theirs ran\n", under.err


def test_nothing_heavy_is_loaded_in_a_child_that_needs_none(tmp_path: Path) -> None:
    """An import hook until diffusers comes: neither msgspec nor the session's machinery."""
    child = (
        "import sys; print(sorted({'msgspec', 'torch', 'stepscope.session.attached_run'} & set(sys.modules)))"
    )
    (tmp_path / "script.py").write_text(
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
    )
    under = programs.run(["--children", "--perf-dump-path", "perf.json", "script.py"], tmp_path)

    assert under.out == "[]\n"


def test_a_bad_variable_is_a_line_and_no_harm(tmp_path: Path) -> None:
    """Somebody else's value, or an older version's: the child runs unobserved and says so."""
    from stepscope.capture.inject.settings import CHILDREN_VARIABLE, on_path

    (tmp_path / "script.py").write_text("import pipelines; print(pipelines.sd(pipelines.toy_sd(), 1))\n")
    (tmp_path / "script.py").write_text("from diffusers import DiffusionPipeline; print('fine')\n")
    site = on_path(programs.environment())
    ended = programs.python(["script.py"], tmp_path, **site, **{CHILDREN_VARIABLE: "{}"})

    assert (ended.status, ended.out) == (0, "fine\n")
    assert ended.err.count("a child process is not observed") >= 1


@pytest.mark.parametrize(
    "trace", [None, ProfileOptions(steps=-1, detail=TraceDetail.OPS, directory=Path("/t"))]
)
def test_options_survive_the_environment(trace: ProfileOptions | None) -> None:
    """Written and read, they are the same."""
    options = AttachOptions(
        trace=trace, traced=(range(1, 4), range(7, 2**62)), perf_dump_path=Path("/a/perf.json")
    )

    assert from_text(to_text(options)) == options
