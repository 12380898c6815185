"""``stepscope.call``, ``stage`` and ``step``: code that is no diffusers pipeline, marked by itself."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import pipelines
import programs
import stepscope
from stepscope.analyse.run.timeline import cut
from stepscope.capture.fake import FakeDevice, FakeDeviceClock
from stepscope.capture.freeze import OVERLAPPED
from stepscope.capture.observer import Observer
from stepscope.model.vocabulary import UNMARKED, Unmarked


def graph(steps: int = 3) -> Any:
    """A node graph as ComfyUI runs it: nodes that call modules, no pipeline anywhere."""
    encoder, denoiser, decoder = torch.nn.Linear(4, 4), pipelines.ToyDenoiser(), pipelines.ToyDecoder()
    with torch.no_grad():
        with stepscope.stage("LoadAndEncode"):
            sample = encoder(torch.ones(2, 4))
        with stepscope.stage("KSampler"):
            for index in range(steps):
                with stepscope.step(index):
                    sample = sample - 0.1 * denoiser(sample, index)
        with stepscope.stage("VAEDecode"):
            return decoder.decode(sample)


def test_marked_stages_and_steps_are_the_run() -> None:
    """In their order, under their own names; steps belong to the stage around them."""
    with stepscope.profile() as session, stepscope.call("prompt 1"):
        graph()
    (call,) = session.calls

    assert call.run.workload.model == "prompt 1"
    assert [name for name in call.stages_ms if name not in UNMARKED] == [
        "LoadAndEncode",
        "KSampler",
        "VAEDecode",
    ]
    assert len(call.steps_ms) == 3
    assert {step.stage_index for step in call.run.steps} == {
        stage.stage_index for stage in call.run.stages if stage.span.name == "KSampler"
    }
    assert sum(call.steps_ms) <= call.stages_ms["KSampler"]
    assert programs.doubts(call.dump) == []


def test_marks_outside_of_any_call_make_one_in_a_session_of_everything() -> None:
    """The shortest form: a session, stages and steps in it."""
    with stepscope.profile() as session:
        graph(2)
    (call,) = session.calls

    assert len(call.steps_ms) == 2
    assert "VAEDecode" in call.stages_ms


def test_each_prompt_of_a_graph_is_a_call() -> None:
    """As a server runs them, in its worker thread."""
    with stepscope.profile() as session:

        def worker() -> None:
            for number in range(3):
                with stepscope.call(f"prompt {number}"):
                    graph(number + 1)

        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()

    assert [len(call.steps_ms) for call in session.calls] == [1, 2, 3]


def test_a_pipeline_inside_a_marked_call_is_part_of_it() -> None:
    """Its stages and steps beside the marked ones, numbered on, in one run."""
    pipeline = pipelines.stable_diffusion()
    with stepscope.profile() as session, stepscope.call("graph"):
        graph(2)
        pipelines.sd(pipeline, 3)
    (call,) = session.calls

    assert [step.index for step in call.run.steps] == [0, 1, 2, 3, 4]
    assert [len(step.forwards) for step in call.run.steps] == [0, 0, 1, 1, 1]
    assert {"KSampler", "TextEncodingStage", "DecodingStage"} <= set(call.stages_ms)
    assert programs.doubts(call.dump) == []


def test_a_stage_inside_a_pipelines_call_takes_its_time() -> None:
    """A callback that decodes a preview names it."""
    pipeline = pipelines.stable_diffusion()

    def preview(_pipeline: Any, index: int, _timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        with stepscope.stage("Preview"):
            pass
        return tensors

    with stepscope.profile(pipeline) as session:
        pipelines.sd(pipeline, 3, callback_on_step_end=preview)

    stages = [stage.span.name for stage in session.calls[0].run.stages]
    assert stages.count("Preview") == 3
    assert len(session.calls[0].steps_ms) == 3


def test_a_marked_loop_is_traced_exactly(tmp_path: Path) -> None:
    """Steps 1 and 2 of five, by the marks alone."""
    with stepscope.profile(steps=2) as session, stepscope.call("graph"):
        graph(5)
    (call,) = session.calls

    assert [trace.steps for trace in call.run.traces] == [(1, 2)]
    assert [step.traced for step in call.run.steps] == [True, True, True, False, False]
    assert programs.doubts(call.dump) == []


def test_a_marked_stage_has_the_devices_time_and_not_the_hosts() -> None:
    """Work that is launched and not waited for is the stage's in which it was launched."""
    device = FakeDevice()
    with Observer(clock=FakeDeviceClock(device)) as observer:
        progress = observer.begin(pipelines.toy())
        with stepscope.stage("Upscale"):
            device.launch(ms=100)
        with stepscope.stage("Save"):
            device.work(ms=1)
        recording = progress.finish().recording

    inside = [edge.at.device_ns for edge in recording.edges if edge.component == "Upscale"]
    assert [None if at is None else at - (inside[0] or 0) for at in inside] == [0, 100_000_000]


def test_marks_in_a_program_that_nobody_observes_do_nothing() -> None:
    """They may stay in, with any name."""
    with stepscope.call("x"), stepscope.stage("y"), stepscope.step(0):
        pass
    assert graph() is not None


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, 3])
def test_a_bad_name_is_told(name: Any) -> None:
    """Where it is observed, at the mark."""
    with stepscope.profile(), pytest.raises(stepscope.UsageError, match="no name"), stepscope.stage(name):
        pass


def test_an_exception_in_a_marked_stage_ends_the_call_where_it_came() -> None:
    """The run says in which stage; nothing stays open."""
    with (
        stepscope.profile() as session,
        pytest.raises(ZeroDivisionError),
        stepscope.call("graph"),
        stepscope.stage("Bad"),
    ):
        raise ZeroDivisionError("no")

    assert session.calls[0].failed == "ZeroDivisionError: no, in Bad"


def test_marks_that_end_in_another_order_have_their_own_time() -> None:
    """Of a generator or of two tasks: what is open innermost has the time, also after an outer one's end."""
    device = FakeDevice()
    with Observer(clock=FakeDeviceClock(device)) as observer:
        progress = observer.begin(pipelines.toy())
        first, second = stepscope.stage("First"), stepscope.stage("Second")
        first.__enter__()
        device.work(ms=1)
        second.__enter__()
        device.work(ms=2)
        first.__exit__(None, None, None)
        device.work(ms=4)
        with stepscope.step(0):
            device.work(ms=8)
        second.__exit__(None, None, None)
        first.__exit__(None, None, None)  # once more, and nothing is open
        device.work(ms=16)
        recording = progress.finish().recording
    pieces = cut(replace(recording, block=True))
    ms: dict[str | None, int] = {}
    for piece in pieces:
        ms[piece.stage] = ms.get(piece.stage, 0) + (piece.end.host_ns - piece.start.host_ns) // 10**6
    assert ms == {"First": 1, "Second": 14, Unmarked.AFTER: 16}
    assert recording.warnings == (OVERLAPPED,)


def test_stages_of_concurrent_tasks_are_said_to_overlap() -> None:
    """Their times cannot be told apart, and the run says so; in order there is nothing to say."""

    async def one(begun: asyncio.Event, ended: asyncio.Event) -> None:
        with stepscope.stage("One"):
            await begun.wait()
        ended.set()

    async def two(begun: asyncio.Event, ended: asyncio.Event) -> None:
        with stepscope.stage("Two"):
            begun.set()
            await ended.wait()

    async def both() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()
        await asyncio.gather(one(begun, ended), two(begun, ended))

    async def in_order() -> None:
        with stepscope.stage("One"), stepscope.stage("Two"):
            await asyncio.sleep(0)

    with stepscope.profile() as session, stepscope.call("server"):
        asyncio.run(both())
    (call,) = session.calls
    assert OVERLAPPED in call.run.warnings
    with stepscope.profile() as session, stepscope.call("server"):
        asyncio.run(in_order())
    (call,) = session.calls
    assert OVERLAPPED not in call.run.warnings
