"""``stepscope.profile``: what a session writes, and when."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import pipelines
import stepscope
from stepscope.record.run_record import read_run


def test_a_traced_session_is_reported_and_saved_whole(sd: Any, tmp_path: Path) -> None:
    """Exactly the steps asked for; the folder holds record, dump and trace, and is not overwritten."""
    with stepscope.profile(sd, steps=2) as session:
        pipelines.sd(sd, 4)
    (call,) = session.calls
    text = io.StringIO()
    session.report(text)
    first, second = session.save(tmp_path / "run"), session.save(tmp_path / "run")

    assert [trace.steps for trace in call.run.traces] == [(1, 2)]
    assert "Steps in the trace" in text.getvalue()
    assert "DenoisingStage" in text.getvalue()
    assert (first, second) == (tmp_path / "run", tmp_path / "run-1")
    record = read_run(first / "run.json")
    assert Path(record.traces[0].path).parent == first
    assert Path(record.traces[0].path).exists()
    assert (first / "perf.json").exists()
    assert not list(tmp_path.rglob(".*"))


def test_several_calls_are_saved_beside_each_other(sd: Any, tmp_path: Path) -> None:
    """One folder for the session, one inside it for each call."""
    with stepscope.profile(sd) as session:
        pipelines.sd(sd, 1)
        pipelines.sd(sd, 1)
    folder = session.save(tmp_path / "runs")

    assert sorted(path.name for path in folder.iterdir()) == ["call-0", "call-1"]
    assert session.save(folder) == tmp_path / "runs-1"


def test_saving_at_once_loses_nothing(sd: Any, tmp_path: Path) -> None:
    """With save_to each call is on the disk when it has ended, a failed one too."""
    with pytest.raises(ValueError, match="half-way"), stepscope.profile(sd, save_to=tmp_path / "a"):
        pipelines.sd(sd, 2)
        assert (tmp_path / "a" / "run.json").exists()
        pipelines.sd(sd, 4, callback_on_step_end=pipelines.failing(2))

    record = read_run(tmp_path / "a-1" / "run.json")
    assert record.incomplete_reason == "ValueError: half-way, in DenoisingStage, step 2"
    assert len(record.steps) == 3


def test_an_impatient_interrupt_costs_no_record(sd: Any, tmp_path: Path) -> None:
    """Ctrl-C in the call, and again while its files are written: they are whole, and then it goes on."""
    import signal

    from stepscope.session import attach

    def callback(*_: Any) -> dict[str, Any]:
        signal.raise_signal(signal.SIGINT)
        return {}

    real = attach.keep_call

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attach, "keep_call", interrupted)
        with pytest.raises(KeyboardInterrupt), stepscope.profile(sd, save_to=tmp_path / "run"):
            pipelines.sd(sd, 2, callback_on_step_end=callback)

    record = read_run(tmp_path / "run" / "run.json")
    assert (record.incomplete_reason or "").startswith("KeyboardInterrupt")
    assert (tmp_path / "run" / "perf.json").exists()


def test_a_session_without_a_call_says_so(sd: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its report, and that there is nothing to save."""
    with stepscope.profile(sd) as session:
        pass
    session.report()

    assert "no call was seen" in capsys.readouterr().out
    with pytest.raises(stepscope.UsageError, match="no call to save"):
        session.save("nowhere")


def test_a_folder_that_cannot_be_written_is_told_before_the_work(sd: Any, tmp_path: Path) -> None:
    """Part of the path is a file."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(stepscope.RunFailedError, match="cannot write"),
        stepscope.profile(sd, save_to=tmp_path / "file" / "x"),
    ):
        pass
