"""``stepscope run -- COMMAND``: a small engine with SGLang's class names, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_sglang import write_engine
from stepscope.cli.observed_command import wall_sentence
from stepscope.record.spool_reader import read_spool
from stepscope.session.engines.collect import run_of
from stepscope.session.engines.command import alive

SOURCE = Path(__file__).parents[1] / "src"


def stepscope(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command line with the engine's folder on the path, as a user has it."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{tmp_path}",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def serve(script: Path, method: str, *requests: str) -> list[str]:
    return ["--", sys.executable, str(script), method, *requests]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_requests_in_a_worker_are_recorded(tmp_path: Path, method: str) -> None:
    """Spawned and forked workers are observed, the client's wall time adds up, each has a dump."""
    script = write_engine(tmp_path)
    done = stepscope(
        tmp_path,
        *("run", "--perf-dump-path", "perf.json", "--records", "records"),
        *serve(script, method, "Req('first')", "Req('second', num_inference_steps=5)"),
    )
    assert done.returncode == 0, done.stderr
    content = read_spool(tmp_path / "records")
    assert content.log == ()
    assert [call.request_id for call in content.calls] == ["first", "second"]
    dumps = [json.loads((tmp_path / name).read_text()) for name in ("perf.json", "perf-1.json")]
    assert [len(dump["denoise_steps_ms"]) for dump in dumps] == [3, 5]
    stages = [stage["name"] for stage in dumps[0]["stages"]]
    assert stages[1:3] == ["TextEncodingStage", "DenoisingStage"]  # after the gap before the first of them
    assert {item["name"] for item in dumps[0]["outside_stages"]} >= {
        "QueueWait",
        "RequestTransfer",
        "ResultTransfer",
    }
    assert all(len(step["forwards"]) == 2 for step in dumps[1]["denoise_steps_ms"])
    assert " ms of it unknown" in done.stderr  # how many is the machine's: no test asserts a wall time


def test_the_answers_are_those_without_us(tmp_path: Path) -> None:
    """Observed, traced and not at all: the engine answers the same."""
    script = write_engine(tmp_path)
    command = serve(script, "spawn", "Req('one')")
    plain = subprocess.run(
        command[1:],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    observed = stepscope(
        tmp_path, "run", "--profile", "--num-profiled-timesteps", "1", "--profile-dir", "t", *command
    )
    answer = [line for line in plain.stdout.splitlines() if line.startswith("ANSWER one")]
    assert "error" not in answer[0]
    assert answer[0] in observed.stdout
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["one-1_steps-global-rank0.trace.json.gz"]


def test_a_failed_and_a_killed_request_keep_what_was_recorded(tmp_path: Path) -> None:
    """A request that raises is recorded as incomplete; one whose worker is killed is named."""
    script = write_engine(tmp_path)
    requests = ("Req('good')", "Req('bad', fail_at=2)", "Req('killed', die_at=1)")
    done = stepscope(tmp_path, "run", "--records", "records", *serve(script, "spawn", *requests))
    assert "ANSWER bad error" in done.stdout
    assert "DIED killed" in done.stdout
    calls = {call.request_id: call for call in read_spool(tmp_path / "records").calls}
    assert set(calls) == {"good", "bad"}
    run = run_of(calls["bad"], None)
    assert run.incomplete_reason == "RuntimeError: the request fails"
    assert len(run.steps) == 2
    assert "in the middle of request killed" in done.stderr


def test_a_hook_point_that_is_gone_is_named(tmp_path: Path) -> None:
    """Another version of the engine works as far as its hook points exist."""
    script = write_engine(tmp_path, without="    execute_group_with_profiling")
    done = stepscope(tmp_path, "run", "--records", "records", *serve(script, "spawn", "Req('one')"))
    assert "hook points not found (tested with 0.5.23)" in done.stderr
    assert "PipelineExecutor.execute_group_with_profiling" in done.stderr
    assert len(read_spool(tmp_path / "records").calls) == 1


def test_a_module_of_hook_points_that_is_gone_is_named(tmp_path: Path) -> None:
    """Where that leaves no pipeline call to see, the run says which hook points it never came to."""
    script = write_engine(tmp_path, renamed=("pipeline_executor", "pipeline_runner"))
    done = stepscope(tmp_path, "run", "--records", "records", *serve(script, "spawn", "Req('one')"))
    assert "ANSWER one" in done.stdout
    assert "no pipeline call of it was seen; never imported: " in done.stderr
    assert "pipeline_executor.PipelineExecutor.execute_with_profiling" in done.stderr


@pytest.mark.parametrize("version", ["9.9.9", None])
def test_a_version_that_was_not_tested_is_said(tmp_path: Path, version: str | None) -> None:
    """Outside the tested range, or without metadata: it works as long as every hook point is there."""
    script = write_engine(tmp_path)
    if version is not None:
        metadata = tmp_path / f"sglang-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    done = stepscope(tmp_path, "run", "--records", "records", *serve(script, "spawn", "Req('one')"))
    named = version or "of unknown version"
    assert f"sglang {named} is outside the tested range (0.5.23); every hook point was found" in done.stderr
    assert len(read_spool(tmp_path / "records").calls) == 1


def test_python_without_an_engine_is_told_so(tmp_path: Path) -> None:
    """An engine that is not installed fails as without us, and the warning asks for it."""
    done = stepscope(tmp_path, "run", "--", sys.executable, "-c", "import sglang.multimodal_gen")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'sglang'" in done.stderr
    assert "is it installed in that environment?" in done.stderr


def test_our_own_fault_is_logged_and_the_request_answered(tmp_path: Path) -> None:
    """A control file that is no JSON is a line in the log; the engine is unharmed, the request recorded."""
    script = write_engine(tmp_path)
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "control.json").write_text("{ not json")
    done = stepscope(tmp_path, "run", "--records", "records", *serve(script, "spawn", "Req('one')"))
    assert "ANSWER one" in done.stdout
    assert "stepscope's own fault, the engine was not disturbed" in done.stderr
    assert len(read_spool(tmp_path / "records").calls) == 1


def test_a_command_without_python_and_one_that_is_not_there(tmp_path: Path) -> None:
    """What cannot be observed is said, and the command's status is ours; no such command is status 2."""
    done = stepscope(tmp_path, "run", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "no process of the command could be observed" in done.stderr
    missing = stepscope(tmp_path, "run", "--", "no-such-engine")
    assert missing.returncode == 2
    assert "no such command" in missing.stderr


def test_the_users_own_sitecustomize_runs_too(tmp_path: Path) -> None:
    """Ours pushes another one aside and runs it afterwards."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.users_own = True\n")
    done = stepscope(tmp_path, "run", "--", sys.executable, "-c", "print(users_own)")
    assert done.stdout.strip() == "True"


def test_tracing_is_switched_on_and_off_by_the_command(tmp_path: Path) -> None:
    """``stepscope requests DIR --trace-next`` writes the control file, ``--trace-off`` takes it away."""
    (tmp_path / "records").mkdir()
    stepscope(tmp_path, "requests", "records", "--trace-next", "2", "--num-profiled-timesteps", "3")
    asked = json.loads((tmp_path / "records" / "control.json").read_text())
    assert (asked["next"], asked["steps"], asked["every"]) == (2, 3, False)
    stepscope(tmp_path, "requests", "records", "--trace-off")
    assert not (tmp_path / "records" / "control.json").exists()
    assert stepscope(tmp_path, "requests", "nowhere").returncode == 2


def test_a_killed_process_that_nobody_has_waited_for_is_not_alive() -> None:
    """A container's first process often does not wait for orphans: a killed worker stays a zombie."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert alive(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is still there
        assert not alive(process.pid)
    assert not alive(process.pid)


def test_where_nothing_was_recorded_a_plugin_filter_may_be_why(tmp_path: Path) -> None:
    """Started by the variable alone and left out: no folder, or one without a process; both are explained."""
    missing = stepscope(tmp_path, "requests", "records")
    assert missing.returncode == 2
    (tmp_path / "records").mkdir()
    empty = stepscope(tmp_path, "requests", "records")
    for said in (missing.stderr, empty.stderr):
        assert "a plugin filter (SGLANG_PLUGINS, VLLM_PLUGINS) leaves stepscope out" in " ".join(said.split())


@pytest.mark.parametrize(
    ("missing_ms", "said"),
    [
        (0.4, "client's wall 10.0 ms, 0.4 ms of it unknown"),
        (-0.01, "client's wall 10.0 ms, 0.0 ms of it unknown"),
        (-8.6, "client's wall 10.0 ms, 8.6 ms less than was worked on it"),
    ],
)
def test_no_time_is_less_than_nothing(missing_ms: float, said: str) -> None:
    """A client that cancels has its answer before the worker hears of it."""
    assert wall_sentence(10.0, missing_ms) == said


def test_a_module_of_the_engine_runs_as_a_program(tmp_path: Path) -> None:
    """``python -m`` asks a module's loader for its code, others for its source and data: it has them."""
    write_engine(tmp_path)
    name = "sglang.multimodal_gen.runtime.managers.gpu_worker"
    done = stepscope(tmp_path, "run", "--", sys.executable, "-m", name)
    assert done.returncode == 0, done.stderr
    code = f"from importlib.util import *; print(find_spec('{name}').loader.is_package('{name}'))"
    assert stepscope(tmp_path, "run", "--", sys.executable, "-c", code).stdout.strip() == "False"


def test_off_means_that_nothing_is_loaded() -> None:
    """The entry point that an installed stepscope gives the engines' plugin groups returns at once."""
    code = (
        "import sys; from stepscope.capture.inject.entry import start; start();"
        "print([n for n in sys.modules if n.startswith('stepscope.capture.engines') or n == 'torch'])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "STEPSCOPE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_process_without_an_engine_has_an_import_hook_and_nothing_else(tmp_path: Path) -> None:
    """A command's other Python processes pay for nothing; numpy has not read its variables yet."""
    code = "import sys; print(sorted({'numpy', 'msgspec', 'torch', 'multiprocessing'} & set(sys.modules)))"
    seen = stepscope(tmp_path, "run", "--", sys.executable, "-c", code)
    assert seen.stdout.splitlines()[0] == "[]"
    assert "no process imported an engine" in seen.stderr
