"""``pytest --stepscope`` on a small test-suite of its own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import pytest

import programs
from dumps import stepscope_json
from stepscope.integrations.limits import memory_limit, no_sync_in_loop, stage_limit, step_limit
from stepscope.model.dump import PerfDump

INSTALLED = any(point.name == "stepscope" for point in entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "stepscope.integrations.pytest_plugin"]

SUITE = """
import pytest
import pipelines

@pytest.fixture(scope="module")
def pipe():
    return pipelines.stable_diffusion()

@pytest.mark.limit_step_ms(1e6)
@pytest.mark.limit_stage_ms("DecodingStage", 1e6)
def test_within(pipe):
    assert pipelines.sd(pipe, 3).shape == (1, 32, 32, 3)

@pytest.mark.limit_step_ms(1e-6, statistic="max")
@pytest.mark.limit_stage_ms("DecodingStage", 1e-6)
def test_broken(pipe):
    pipelines.sd(pipe, 3)

@pytest.mark.limit_stage_ms("NoSuchStage", 1)
def test_unknown_stage(pipe):
    pipelines.sd(pipe, 1)

@pytest.mark.limit_step_ms(1e-6)
def test_own_failure_comes_first(pipe):
    pipelines.sd(pipe, 2)
    assert False, "mine"

@pytest.mark.limit_peak_memory_mb(1)
@pytest.mark.no_sync_in_loop
def test_not_checked_on_a_cpu(pipe):
    pipelines.sd(pipe, 3)

@pytest.mark.limit_step_ms(1)
def test_without_a_call():
    pass

@pytest.mark.limit_step_ms("fast")
def test_bad_limit(pipe):
    pass
"""


def suite(folder: Path, *flags: str) -> programs.Ended:
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return programs.python(["-m", "pytest", "-p", "no:cacheprovider", *PLUGIN, *flags], folder)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> tuple[programs.Ended, Path]:
    """The suite with --stepscope, and where it ran."""
    folder = tmp_path_factory.mktemp("suite")
    return suite(folder, "--stepscope", "--stepscope-dir", "kept", "-rA"), folder


def test_limits_fail_the_tests_that_break_them_and_no_other(observed: Any) -> None:
    """With what was measured, and without a traceback through the plugin."""
    ended, _ = observed

    assert "3 passed, 4 failed" in ended.out.replace("4 failed, 3 passed", "3 passed, 4 failed")
    assert "limit_step_ms: max of 2 steps is" in ended.out
    assert "limit_stage_ms: DecodingStage took" in ended.out
    assert "the call has no NoSuchStage; its stages: InputValidationStage" in ended.out
    assert "AssertionError: mine" in ended.out
    assert "@pytest.mark.limit_step_ms: limit_step_ms: 'fast' is no limit" in ended.out
    assert "pytest_observer.py" not in ended.out.partition("warnings summary")[0]


def test_what_cannot_be_checked_is_a_warning(observed: Any) -> None:
    """Memory and synchronisation on a CPU; limits on a test without a pipeline call."""
    ended, _ = observed

    assert "not checked: limit_peak_memory_mb: there is no device allocator to read on the CPU" in ended.out
    assert "not checked: no_sync_in_loop: there was no device" in ended.out
    assert "the test has limits but no pipeline call was seen in it" in ended.out


def test_the_summary_and_the_kept_records(observed: Any) -> None:
    """A line a test that called a pipeline; a folder each, with a trace where one was needed."""
    ended, folder = observed
    kept = sorted(path.name for path in (folder / "kept").iterdir())

    assert "stepscope: pipeline calls" in ended.out
    assert len(kept) == 5
    assert "test_suite.py__test_within" in kept
    traced = folder / "kept" / "test_suite.py__test_not_checked_on_a_cpu"
    assert [path.suffix for path in traced.iterdir() if "steps" in path.name] == [".gz"]


def test_without_the_flag_nothing_is_observed(tmp_path: Path) -> None:
    """Marks are known and do nothing; stepscope's machinery is not even imported."""
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_sessionfinish():\n"
        "    print('LOADED', [name for name in sys.modules if name.startswith('stepscope.session')])\n"
    )
    ended = suite(tmp_path, "-k", "without_a_call", "-s")

    assert "1 passed" in ended.out
    assert "LOADED []" in ended.out


def test_a_folder_without_the_flag_is_told(tmp_path: Path) -> None:
    """One line, pytest's own status for wrong usage."""
    ended = suite(tmp_path, "--stepscope-dir", "x")

    assert ended.status == 4
    assert "--stepscope-dir keeps nothing without --stepscope" in ended.err


class Call:
    """What limits look at."""

    def __init__(self, trace_path: Path | None = None, peak_mb: float | None = None) -> None:
        self.dump = msgspec.convert(stepscope_json([10.0, 20.0, 30.0]), PerfDump)
        self.trace_path = trace_path
        self.peak_memory_mb = peak_mb
        self.stages_ms = {stage.name: stage.duration_ms for stage in self.dump.steps}


def broken(verdicts: Iterator[Any]) -> list[str]:
    return [verdict.broken for verdict in verdicts if verdict.broken]


def test_a_peak_above_its_limit_is_told() -> None:
    """In MiB; at the limit is within it."""
    assert broken(memory_limit(10)(Call(peak_mb=10.0))) == []
    assert "10.5 MiB, more than 10 MiB" in broken(memory_limit(10)(Call(peak_mb=10.5)))[0]


def test_synchronisations_in_the_loop_are_found_in_a_gpu_trace(shared_traces: Path) -> None:
    """Each with its count, its operator and its line, however little it costs."""
    trace = shared_traces / "wan_4layer_unipc_stack.trace.json.gz"
    found = broken(no_sync_in_loop()(Call(trace_path=trace)))

    assert found
    assert all("no_sync_in_loop: " in text and " steps" in text for text in found)


@pytest.mark.parametrize(
    "make", [step_limit, memory_limit, lambda value: stage_limit("DecodingStage", value)]
)
@pytest.mark.parametrize("value", [0, -1, "x", None, True, float("nan")])
def test_a_limit_that_is_none_is_told(make: Any, value: Any) -> None:
    """At the mark, not in the middle of a comparison."""
    with pytest.raises(Exception, match="is no limit"):
        make(value)
