"""``stepscope.profile``: sessions, their results, and what they do with misuse."""

from __future__ import annotations

import dataclasses
import gc
import io
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pipelines
import programs
import stepscope
from stepscope.capture.wrapping import installed_count
from stepscope.record.run_record import read_run


@pytest.fixture(scope="module")
def sd() -> Any:
    return pipelines.stable_diffusion()


def failing(step: int) -> Any:
    def callback(_pipeline: Any, index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        if index == step:
            raise ValueError("half-way")
        return {}

    return callback


def test_a_session_has_every_call_with_its_times(sd: Any) -> None:
    """Frozen results with plain attributes; the picture is that of an unobserved call."""
    expected = pipelines.sd(sd, 3)
    with stepscope.profile(sd) as session:
        picture = pipelines.sd(sd, 3)
        pipelines.sd(sd, 2)
    first, second = session.calls

    assert np.array_equal(picture, expected)
    assert (len(first.steps_ms), len(second.steps_ms)) == (3, 2)
    assert list(first.stages_ms)[-2:] == ["DecodingStage", "PostprocessingStage"]
    assert 0 < sum(first.stages_ms.values()) <= first.total_ms * 1.02
    assert programs.doubts(first.dump) == []
    assert (first.failed, first.trace_path, first.peak_memory_mb) == (None, None, None)
    assert first.run.workload.prompt == "a cat"
    assert (first.run.workload.steps, first.run.workload.seed, first.run.workload.height) == (3, 0, 32)
    assert session.problems == ()
    with pytest.raises(AttributeError):
        first.run = second.run
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.run.call_id = 7


def test_later_calls_know_what_came_before(sd: Any) -> None:
    """The program's own earlier calls of a pipeline are its warm-up."""
    with stepscope.profile(sd) as session:
        for _ in range(3):
            pipelines.sd(sd, 2)

    warmups = [call.run.warmup for call in session.calls]
    assert [warmup.requests for warmup in warmups if warmup] == [0, 1, 2]
    assert warmups[2] is not None
    assert warmups[2].steps_each == 2


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
        pipelines.sd(sd, 4, callback_on_step_end=failing(2))

    record = read_run(tmp_path / "a-1" / "run.json")
    assert record.incomplete_reason == "ValueError: half-way, in DenoisingStage, step 2"
    assert len(record.steps) == 3


def test_a_pipeline_that_fails_half_way_is_recorded(sd: Any) -> None:
    """The exception is the caller's, with at most one frame of ours in it; the record says where it ended."""
    with stepscope.profile(sd) as session, pytest.raises(ValueError, match="half-way") as raised:
        pipelines.sd(sd, 4, callback_on_step_end=failing(1))

    ours = [entry for entry in raised.traceback if "stepscope/capture" in str(entry.path)]
    assert len(ours) == 1
    assert len(session.calls[0].steps_ms) == 2
    assert (session.calls[0].failed or "").startswith("ValueError: half-way")
    assert not session.calls[0].trusted


def test_a_session_does_not_keep_the_exception_and_its_tensors_alive(sd: Any) -> None:
    """A failed call's frames hold the pictures of that call: a server must not collect them."""
    kept = []

    class Held(ValueError):
        pass

    def callback(*_: Any) -> dict[str, Any]:
        error = Held()
        kept.append(weakref.ref(error))
        raise error

    with stepscope.profile(sd) as session:
        with pytest.raises(Held):
            pipelines.sd(sd, 2, callback_on_step_end=callback)
        gc.collect()
        assert kept[0]() is None

    assert session.count == 1


def test_a_session_observes_once(sd: Any) -> None:
    """A second time, or stopped without a start, it says so; its results stay."""
    with stepscope.profile(sd) as session:
        pipelines.sd(sd, 1)
    with pytest.raises(stepscope.UsageError, match="observes once"), session:
        pass
    with pytest.raises(stepscope.UsageError, match="nothing to stop"):
        session.stop()

    assert session.count == 1


@pytest.mark.parametrize("everything", [True, False])
def test_nested_sessions_are_refused_and_the_outer_goes_on(sd: Any, everything: bool) -> None:
    """Two records of one call would be one too many; the message says what to do."""
    with stepscope.profile(sd) as outer:
        with (
            pytest.raises(stepscope.UsageError, match="already observing"),
            stepscope.profile(None if everything else sd),
        ):
            pass
        pipelines.sd(sd, 1)

    assert outer.count == 1


def test_sessions_of_two_pipelines_may_be_nested(sd: Any) -> None:
    """Each has its own calls."""
    other = pipelines.stable_diffusion()
    with stepscope.profile(sd) as one, stepscope.profile(other) as two:
        pipelines.sd(sd, 1)
        pipelines.sd(other, 2)

    assert [len(session.calls[0].steps_ms) for session in (one, two)] == [1, 2]


def test_two_sessions_in_two_threads_do_not_mix(sd: Any) -> None:
    """The same pipeline, each thread its own session, at the same time."""
    found: dict[int, list[int]] = {}
    barrier = threading.Barrier(2)
    pair = {2: pipelines.stable_diffusion(), 5: pipelines.stable_diffusion()}

    def work(steps: int) -> None:
        with stepscope.profile(pair[steps]) as session:
            for _ in range(3):
                barrier.wait()
                pipelines.sd(pair[steps], steps)
        found[steps] = [len(call.steps_ms) for call in session.calls]

    threads = [threading.Thread(target=work, args=(steps,)) for steps in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {2: [2, 2, 2], 5: [5, 5, 5]}


def test_a_session_may_start_in_one_thread_and_stop_in_another(sd: Any) -> None:
    """As a server does it: calls of every thread between the two are seen, none after."""
    session = stepscope.profile(sd)
    starter = threading.Thread(target=session.start)
    starter.start()
    starter.join()
    pipelines.sd(sd, 1)
    session.stop()
    pipelines.sd(sd, 1)

    assert session.count == 1
    assert installed_count() == 0


def test_a_call_on_its_way_when_the_session_ends_is_recorded_whole(sd: Any) -> None:
    """A server is switched off under load: the record has every step, and then nothing stays installed."""
    inside, go_on = threading.Event(), threading.Event()

    def callback(*arguments: Any) -> dict[str, Any]:
        inside.set()
        go_on.wait(30)
        return {}

    session = stepscope.profile(sd).start()
    thread = threading.Thread(target=lambda: pipelines.sd(sd, 4, callback_on_step_end=callback))
    thread.start()
    inside.wait(30)
    session.stop()
    go_on.set()
    thread.join()

    assert [len(call.steps_ms) for call in session.calls] == [4]
    assert "DecodingStage" in session.calls[0].stages_ms
    assert installed_count() == 0


def test_memory_is_bounded(sd: Any) -> None:
    """The newest calls are held, all are counted."""
    with stepscope.profile(sd, kept_calls=2) as session:
        for steps in (1, 2, 3):
            pipelines.sd(sd, steps)

    assert session.count == 3
    assert [len(call.steps_ms) for call in session.calls] == [2, 3]


def test_a_pipeline_deleted_inside_the_session_is_let_go() -> None:
    """The session keeps its results, not the pipeline."""
    pipeline = pipelines.stable_diffusion()
    with stepscope.profile(pipeline) as session:
        pipelines.sd(pipeline, 1)
        gone = weakref.ref(pipeline)
        del pipeline
        gc.collect()
        assert gone() is None

    assert session.count == 1
    assert installed_count() == 0


def test_a_pipeline_gone_before_the_session_begins_is_told() -> None:
    """Not an empty result."""
    session = stepscope.profile(pipelines.stable_diffusion())
    gc.collect()
    with pytest.raises(stepscope.UsageError, match="is gone"), session:
        pass


def test_a_compiled_and_an_already_wrapped_pipeline_are_observed() -> None:
    """torch.compile around a part, and somebody's own wrapper at the class, stay where they are."""
    torch._dynamo.reset()
    pipeline = pipelines.stable_diffusion()
    pipeline.unet = torch.compile(pipeline.unet, backend="eager")
    theirs = type("Theirs", (type(pipeline),), {})
    calls = []

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(self)
        return super(theirs, self).__call__(*args, **kwargs)

    theirs.__call__ = call
    pipeline.__class__ = theirs
    with stepscope.profile(pipeline) as session:
        pipelines.sd(pipeline, 2)

    assert vars(theirs)["__call__"] is call
    assert len(calls) == 1
    assert len(session.calls[0].steps_ms) == 2
    assert session.calls[0].run.engaged.compiled_modules == 1


NOT_PIPELINES = [
    (lambda: 3, "cannot be called"),
    (lambda: pipelines.sd, "is no pipeline"),
    (lambda: type(pipelines.stable_diffusion()), "is a class"),
    (lambda: len, "is no pipeline"),
]


@pytest.mark.parametrize(("make", "said"), NOT_PIPELINES)
def test_what_is_no_pipeline_is_told(make: Any, said: str) -> None:
    """At once, in words."""
    with pytest.raises(stepscope.UsageError, match=said):
        stepscope.profile(make())


@pytest.mark.parametrize("steps", [0, -2, True, "x", "5", 2.0, [1]])
def test_a_wrong_number_of_steps_is_told(sd: Any, steps: Any) -> None:
    """Before anything is installed, with what to give instead, whatever it is."""
    with pytest.raises(stepscope.UsageError, match=r"steps is .*whole number"):
        stepscope.profile(sd, steps=steps)


@pytest.mark.parametrize(("argument", "value"), [("kept_calls", "x"), ("kept_calls", 0), ("save_to", 5)])
def test_another_argument_of_the_wrong_kind_is_told(sd: Any, argument: str, value: Any) -> None:
    """In words, before anything is installed."""
    with pytest.raises(stepscope.UsageError, match=f"{argument} is"):
        stepscope.profile(sd, **{argument: value})


def test_a_number_of_numpy_is_a_number(sd: Any) -> None:
    """As a loop over an array gives it."""
    stepscope.profile(sd, steps=np.int64(3))


@pytest.mark.parametrize(("detail", "has_frames"), [("ops", False), ("full", True)])
def test_the_detail_of_a_trace_is_what_was_asked_for(sd: Any, detail: str, has_frames: bool) -> None:
    """Python frames cost most: they are there where full detail was asked for, which is the default."""
    from stepscope.record.open import read_trace

    with stepscope.profile(sd, steps=1, detail=detail) as session:
        pipelines.sd(sd, 3)
    path = session.calls[0].trace_path
    assert path is not None
    trace = read_trace(path)

    assert len(trace.operators.start_ns) > 100
    assert (len(trace.frames.start_ns) > 0) is has_frames


def test_a_detail_that_needs_a_request_beforehand_is_refused(sd: Any) -> None:
    """The requests are somebody else's."""
    with pytest.raises(stepscope.UsageError, match="detail is 'source'"):
        stepscope.profile(sd, steps=1, detail="source")


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_worker_is_told_that_its_parents_session_does_not_see_it(tmp_path: Path) -> None:
    """Its call works and is not lost without a word."""
    pipeline = Toy()
    said = tmp_path / "said"
    with stepscope.profile(pipeline) as session:
        pid = os.fork()
        if pid == 0:
            with pytest.warns(UserWarning, match="forked process"):
                said.write_text(str(float(pipeline().sum())))
            os._exit(0)
        os.waitpid(pid, 0)
        expected = pipeline()

    assert float(said.read_text()) == float(expected.sum())
    assert session.count == 1


class Toy:
    """A pipeline that is no diffusers pipeline but has the parts of one."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.scheduler = pipelines.ToyScheduler()
        self.transformer = pipelines.ToyDenoiser()
        self.vae = pipelines.ToyDecoder()

    def __call__(self, steps: int = 2) -> Any:
        sample = torch.ones(1, 4)
        with torch.no_grad():
            for step in range(steps):
                sample = self.scheduler.step(self.transformer(sample, step), sample)
            return self.vae.decode(sample)


def test_any_object_with_a_pipelines_parts_is_one() -> None:
    """Observation goes by parts, not by the library."""
    toy = Toy()
    with stepscope.profile(toy) as session:
        toy(3)

    assert [len(step.forwards) for step in session.calls[0].run.steps] == [1, 1, 1]


def test_a_session_of_everything_sees_classes_old_and_new(sd: Any) -> None:
    """Without a pipeline: those there are, and a subclass defined inside the block; hooks go with it."""
    from diffusers import DiffusionPipeline

    with stepscope.profile() as session:
        pipelines.sd(sd, 1)

        class New(type(sd)):
            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                return super().__call__(*args, **kwargs)

        new = New(**sd.components, requires_safety_checker=False)
        new.set_progress_bar_config(disable=True)
        pipelines.sd(new, 2)

    assert [call.run.workload.pipeline_class for call in session.calls] == ["StableDiffusionPipeline", "New"]
    assert "__init_subclass__" not in vars(DiffusionPipeline)
    assert "__stepscope_wrapper__" not in vars(New.__call__)


def test_the_notebook_view_is_one_escaped_frame(sd: Any) -> None:
    """Nothing of the page reaches the notebook around it, whatever a prompt holds."""
    with stepscope.profile(sd) as session:
        sd('"><script>alert(1)</script>', num_inference_steps=1, height=32, width=32, output_type="np")
    view = session._repr_html_()

    assert view.startswith("<iframe ")
    assert view.count("<") == 2  # the frame's own two tags
    assert 'sandbox="allow-scripts"' in view
    assert "alert(1)&lt;/script&gt;" not in view.replace("&amp;lt;", "")
