"""Signals at every point of a run: what was recorded is on disk, and nothing of ours stays installed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.cli import main
from stepscope.model.errors import Terminated
from stepscope.record.run_record import read_run
from stepscope.session import interrupts

PLACES = (
    "stepscope.capture.observer.CallInProgress.finish",
    "stepscope.capture.observer.freeze",
    "stepscope.capture.window.Profiler.export",
    "stepscope.session.observe.assemble",
    "stepscope.session.keep.write_dump",
    "stepscope.session.keep.write_run",
)
"""After the pipeline has returned: whatever is interrupted there, the whole run is known."""


pytestmark = pytest.mark.usefixtures("own_folder")


def signalled(monkeypatch: pytest.MonkeyPatch, place: str, *signals: int) -> None:
    """Let the process get the signals when the function at ``place`` is first called."""
    from pkgutil import resolve_name

    owner, _, name = place.rpartition(".")
    original = getattr(resolve_name(owner), name)

    left = list(signals)

    def function(*arguments: Any, **keywords: Any) -> Any:
        while left:
            number = left.pop()
            os.kill(os.getpid(), number)
        return original(*arguments, **keywords)

    monkeypatch.setattr(place, function)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_after_the_call_costs_nothing(monkeypatch: pytest.MonkeyPatch, place: str, times: int) -> None:
    """Trace, picture, dump and run record are written; the interrupt is raised after that."""
    signalled(monkeypatch, place, *[signal.SIGINT] * times)

    with pytest.raises(KeyboardInterrupt):
        stepscope.generate(
            model_path="tiny/flux.1-schnell",
            prompt=["x", "never run"],
            num_inference_steps=2,
            profile=True,
            warmup=False,
            perf_dump_path="perf.json",
            run_dir="run",
        )

    run = read_run(Path("run/run.json"))
    assert run.incomplete_reason is None
    assert Path(run.traces[0].path).exists()
    assert Path(run.outputs[0].path or "").exists()
    assert json.loads(Path("perf.json").read_text())["incomplete_reason"] is None
    assert sorted(path.name for path in Path().iterdir()) == ["perf.json", "run"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_leaves_what_ctrl_c_leaves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    """A scheduler's SIGTERM or a closed terminal in a step: the steps so far are in the dump."""
    signalled(monkeypatch, "diffusers.FlowMatchEulerDiscreteScheduler.step", number)
    words = "--model-path tiny/flux.1-schnell --prompt x --no-warmup --perf-dump-path perf.json"

    assert main(["generate", *words.split()]) == 128 + number

    assert capsys.readouterr().err == f"stepscope: ended by {number.name}\n"
    reason = json.loads(Path("perf.json").read_text())["incomplete_reason"]
    assert reason == f"Terminated: {number.name}, in DenoisingStage, step 0"
    assert signal.getsignal(number) is signal.SIG_DFL


def test_an_ignored_signal_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """``nohup`` keeps its promise."""
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    with interrupts.termination_raises():
        monkeypatch.undo()
        assert signal.getsignal(signal.SIGHUP) is not interrupts._terminate


def test_the_third_signal_in_a_row_is_obeyed_at_once() -> None:
    """Nobody has to kill -9 a process that hangs while it writes."""
    held = interrupts.Interrupts()
    with pytest.raises(KeyboardInterrupt), held.held_back():
        for _ in range(interrupts.INSISTENCE):
            os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("still held back")
    assert held.pending() is None


def test_held_signals_do_what_they_did_before() -> None:
    """A handler of the user's that raises nothing is called, late, and nothing is raised."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        held = interrupts.Interrupts()
        with held.held_back():
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == []
            with held.allowed():
                os.kill(os.getpid(), signal.SIGTERM)
            assert seen == [signal.SIGTERM]
        assert held.pending() is None
        assert seen == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_termination_is_no_error_of_the_pipelines() -> None:
    """``except Exception`` in a pipeline does not swallow it, and its status is the shell's."""
    assert not issubclass(Terminated, Exception)
    assert Terminated(signal.SIGTERM).exit_status == 143
