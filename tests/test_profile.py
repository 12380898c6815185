"""``stepscope.profile``: what a session holds of each call, and what it lets go."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import pipelines
import programs
import stepscope
from stepscope.capture.wrapping import installed_count


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


def test_a_pipeline_that_fails_half_way_is_recorded(sd: Any) -> None:
    """The exception is the caller's, with at most one frame of ours in it; the record says where it ended."""
    with stepscope.profile(sd) as session, pytest.raises(ValueError, match="half-way") as raised:
        pipelines.sd(sd, 4, callback_on_step_end=pipelines.failing(1))

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


def test_any_object_with_a_pipelines_parts_is_one() -> None:
    """Observation goes by parts, not by the library."""
    toy = pipelines.ToyPipeline()
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
