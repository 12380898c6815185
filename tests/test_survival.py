"""What pipelines do that a plain wrapper does not survive: copies, inspection, compilation, threads."""

from __future__ import annotations

import copy
import gc
import inspect
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch

import pipelines
from compilations import compile_counts
from observing import ENVIRONMENT, WORKLOAD, observe
from stepscope.capture.active import make_wrapper
from stepscope.capture.observer import Observer
from stepscope.capture.wrapping import Wrappers, installed_count
from stepscope.model.errors import UsageError
from stepscope.session.observe import Observation, ObserveOptions, observing


def watching(pipeline: Any, **options: Any) -> AbstractContextManager[Observation]:
    return observing(
        pipeline,
        request_id=lambda index: f"call-{index}",
        workload=WORKLOAD,
        environment=ENVIRONMENT,
        options=ObserveOptions(**options),
    )


class TwoSchedulers:
    """Copies its scheduler and steps both in turn, as LTX2 does for audio and video."""

    def __init__(self) -> None:
        self.scheduler = pipelines.ToyScheduler()
        self.transformer = pipelines.ToyDenoiser()
        self.vae = pipelines.ToyDecoder()

    def __call__(self, steps: int = 3) -> Any:
        audio_scheduler = copy.deepcopy(self.scheduler)
        self.scheduler.set_timesteps(steps)
        audio_scheduler.set_timesteps(steps)
        video, audio = torch.ones(1, 4), torch.ones(1, 4)
        for step in range(steps):
            noise = self.transformer(video, step)
            video = self.scheduler.step(noise, video)
            audio = audio_scheduler.step(noise, audio)
        return self.vae.decode(video + audio)


def test_a_copied_scheduler_is_seen_and_drives_itself() -> None:
    """Two schedulers of one class in one iteration are one step; the copy is not the original."""
    pipeline = TwoSchedulers()
    with torch.no_grad():
        expected = pipeline()
        call = observe(pipeline, pipeline)

    assert torch.equal(call.result, expected)
    assert [step.scheduler_calls for step in call.run.steps] == [2, 2, 2]


def test_a_copy_of_an_observed_pipeline_carries_nothing(sd: Any) -> None:
    """Wrapping is by class: a deepcopy taken inside a call has no attribute of ours."""
    copies = []

    def callback(pipeline: Any, _index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        copies.append(copy.deepcopy(pipeline.scheduler))
        return {}

    observe(sd, lambda: pipelines.sd(sd, callback_on_step_end=callback))

    assert set(vars(copies[0])) == set(vars(sd.scheduler))


def test_pipelines_that_inspect_signatures_see_the_originals() -> None:
    """LCM passes its generator only to a step that names it: dropping it would change the picture."""
    pipeline = pipelines.stable_diffusion(pipelines.scheduler("LCMScheduler"))
    plain = inspect.signature(pipeline.scheduler.step)
    inside = []

    def call() -> Any:
        inside.append(inspect.signature(pipeline.scheduler.step))
        return pipelines.sd(pipeline, 4)

    expected = pipelines.sd(pipeline, 4)

    assert np.array_equal(observe(pipeline, call).result, expected)
    assert inside == [plain]


@pytest.mark.parametrize(
    "name", ["PNDMScheduler", "EulerAncestralDiscreteScheduler", "UniPCMultistepScheduler"]
)
def test_schedulers_repeat_themselves_to_the_bit(name: str) -> None:
    """Stochastic and multistep schedulers give the same picture observed; PNDM adds its own step."""
    pipeline = pipelines.stable_diffusion(pipelines.scheduler(name))
    expected = pipelines.sd(pipeline, 4)
    call = observe(pipeline, lambda: pipelines.sd(pipeline, 4))

    assert np.array_equal(call.result, expected)
    assert len(call.run.steps) == (5 if name == "PNDMScheduler" else 4)


class Combined:
    """A prior pipeline and a decoder pipeline in one, as Kandinsky's combined pipelines are."""

    def __init__(self) -> None:
        self.prior_pipe = pipelines.stable_diffusion()
        self.decoder_pipe = pipelines.stable_diffusion()

    def __call__(self) -> Any:
        pipelines.sd(self.prior_pipe, 2)
        return pipelines.sd(self.decoder_pipe, 3)


def test_pipelines_inside_a_pipeline_are_part_of_its_call() -> None:
    """One run, two denoising stages, step numbers that run on, names that tell the parts apart."""
    pipeline = Combined()
    with watching(pipeline.prior_pipe) as prior, watching(pipeline) as outer:
        pipeline()

    assert prior.calls == ()
    (call,) = outer.calls
    assert [step.index for step in call.run.steps] == [0, 1, 2, 3, 4]
    assert len({step.stage_index for step in call.run.steps}) == 2
    components = {forward.component for step in call.run.steps for forward in step.forwards}
    assert components == {"prior_pipe.unet", "decoder_pipe.unet"}


def in_place(pipeline: Any) -> None:
    pipeline.unet.compile(backend="eager", fullgraph=True)


def wrapped(pipeline: Any) -> None:
    pipeline.unet = torch.compile(pipeline.unet, backend="eager", fullgraph=True)


def forward_replaced(pipeline: Any) -> None:
    pipeline.unet.forward = torch.compile(pipeline.unet.forward, backend="eager", fullgraph=True)


def decode_replaced(pipeline: Any) -> None:
    pipeline.vae.decode = torch.compile(pipeline.vae.decode, backend="eager")


def blocks(pipeline: Any) -> None:
    for block in pipeline.unet.down_blocks:
        block.compile(backend="eager", fullgraph=True)


def text_encoder(pipeline: Any) -> None:
    pipeline.text_encoder = torch.compile(pipeline.text_encoder, backend="eager")


WAYS = [in_place, wrapped, forward_replaced, decode_replaced, blocks, text_encoder]


@pytest.mark.parametrize("compile_it", WAYS)
def test_a_compiled_part_is_not_compiled_again(compile_it: Callable[[Any], None]) -> None:
    """Compiled and warm before it is observed: no new graph, no new break, all seen, the same picture."""
    torch._dynamo.reset()
    pipeline = pipelines.stable_diffusion()
    compile_it(pipeline)
    expected = pipelines.sd(pipeline)
    warm = compile_counts()

    call = observe(pipeline, lambda: pipelines.sd(pipeline))
    after_removal = pipelines.sd(pipeline)

    assert compile_counts() == warm
    assert np.array_equal(call.result, expected)
    assert np.array_equal(after_removal, expected)
    assert [len(step.forwards) for step in call.run.steps] == [1, 1, 1]
    assert "DecodingStage" in [stage.span.name for stage in call.run.stages]
    assert call.unsteady == ()
    assert call.run.engaged.compile_events == 0
    if compile_it not in (forward_replaced, decode_replaced):
        assert (call.run.engaged.compiled_modules or 0) >= 1


def toy_in_place(pipeline: Any) -> None:
    pipeline.transformer.compile(backend="eager", fullgraph=True)


def toy_wrapped(pipeline: Any) -> None:
    pipeline.transformer = torch.compile(pipeline.transformer, backend="eager", fullgraph=True)


def toy_scheduler(pipeline: Any) -> None:
    pipeline.scheduler.step = torch.compile(pipeline.scheduler.step, backend="eager", fullgraph=True)


class Denoises(pipelines.ToyPipeline):
    """Its loop is a function of its own, which somebody may compile."""

    def __init__(self) -> None:
        super().__init__()
        self.denoise = self._denoise

    def _denoise(self, sample: Any) -> Any:
        for step in range(3):
            sample = self.scheduler.step(self.transformer(sample, step), sample)
        return sample

    def __call__(self) -> Any:
        with torch.no_grad():
            return self.vae.decode(self.denoise(torch.ones(2, 4)))


@pytest.mark.parametrize("compile_it", [toy_in_place, toy_wrapped, toy_scheduler])
def test_compiling_while_observed_adds_nothing(compile_it: Callable[[Any], None]) -> None:
    """As many graphs and breaks as alone; code compiled under observation runs on without it."""

    def counted(run: Callable[[Any], Any]) -> tuple[list[int], list[Any]]:
        torch._dynamo.reset()
        pipeline = Denoises()
        compile_it(pipeline)
        before = compile_counts()
        pictures = [run(pipeline), run(pipeline), pipeline()]
        return np.subtract(compile_counts(), before).tolist(), pictures

    alone, expected = counted(lambda pipeline: pipeline())
    observed, pictures = counted(lambda pipeline: observe(pipeline, pipeline).result)

    assert observed == alone
    assert all(map(torch.equal, pictures, expected))


def test_a_compiled_function_around_a_known_module_is_not_compiled_again() -> None:
    """The wrapper of a module that is called inside somebody's graph is no reason for another graph."""

    class Loop(Denoises):
        def _denoise(self, sample: Any) -> Any:
            return self.transformer(self.transformer(sample, 0), 1)

    torch._dynamo.reset()
    pipeline = Loop()
    pipeline.denoise = torch.compile(pipeline.denoise, backend="eager", fullgraph=True)
    pipeline()
    warm = compile_counts()

    observe(pipeline, pipeline)
    pipeline()

    assert compile_counts() == warm


def test_compiling_is_seen_as_unsteady() -> None:
    """The call that compiled says so, the next one does not: a warm-up knows when to stop."""
    torch._dynamo.reset()
    pipeline = Denoises()
    toy_in_place(pipeline)

    calls = [observe(pipeline, pipeline) for _ in range(2)]

    assert "torch.compile compiled 1 graph" in calls[0].unsteady[0]
    assert calls[0].run.engaged.compile_events
    assert calls[1].unsteady == ()


def test_two_threads_with_the_same_pipeline_do_not_mix(sd: Any) -> None:
    """Each thread's session has its own calls with their own steps, and nobody else's."""
    found: dict[int, list[int]] = {}
    barrier = threading.Barrier(2)
    pipelines.sd(sd, 1)  # what it imports late, two threads must not import at once: diffusers' own race

    def work(steps: int) -> None:
        pipeline = pipelines.stable_diffusion()
        pipeline.unet = sd.unet  # shared: the same instance at work in two calls at once
        with watching(pipeline) as observation:
            for _ in range(3):
                barrier.wait()
                pipelines.sd(pipeline, steps)
            found[steps] = [len(call.run.steps) for call in observation.calls]

    threads = [threading.Thread(target=work, args=(steps,)) for steps in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {2: [2, 2, 2], 5: [5, 5, 5]}


def test_one_pipeline_called_from_two_threads_at_once() -> None:
    """A session opened in one thread sees the calls that a server's pool makes, each as its own run."""
    pipeline = TwoSchedulers()
    with watching(pipeline) as observation:
        threads = [threading.Thread(target=pipeline, args=(steps,)) for steps in (2, 4, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(len(call.run.steps) for call in observation.calls) == [2, 4, 6]
    assert len({call.run.call_id for call in observation.calls}) == 3


def test_a_watched_pipelines_exception_goes_on_and_the_call_is_kept(sd: Any) -> None:
    """The caller sees its own exception; the next call is observed as if nothing had been."""
    with watching(sd) as observation:
        with pytest.raises(ValueError, match="height"):
            pipelines.sd(sd, height=33)
        pipelines.sd(sd)

    failed, whole = observation.calls
    assert isinstance(failed.error, ValueError)
    assert (failed.run.incomplete_reason or "").startswith("ValueError")
    assert whole.run.incomplete_reason is None
    assert [call.run.request_id for call in observation.calls] == ["call-0", "call-1"]


def test_a_pipeline_deleted_inside_its_session() -> None:
    """A session does not keep a pipeline alive, and closes without it."""
    pipeline = TwoSchedulers()
    gone = weakref.ref(pipeline)
    with watching(pipeline) as observation:
        pipeline()
        del pipeline
        gc.collect()
        assert gone() is None

    assert len(observation.calls) == 1


def test_what_cannot_be_called_cannot_be_watched() -> None:
    """A clear word instead of a session that never sees anything."""
    with pytest.raises(UsageError, match="cannot be called"), watching(pipelines.toy()):
        pass


def test_classes_are_restored_exactly(sd: Any) -> None:
    """A method that was inherited is inherited again, one that was own is the same object."""
    before = {cls: dict(vars(cls)) for cls in map(type, (sd, *sd.components.values()))}

    with Observer() as observer:
        observer.attach(sd)
        assert installed_count() > 10
        assert "__call__" in vars(type(sd.unet))

    assert before == {cls: dict(vars(cls)) for cls in before}


def test_two_sessions_on_one_class_share_its_wrappers(sd: Any) -> None:
    """The first to close leaves the other's wrappers in place."""
    first, second = Observer(), Observer()
    first.attach(sd)
    count = installed_count()
    second.attach(sd)

    assert installed_count() == count
    first.close()
    assert installed_count() == count
    second.close()
    assert installed_count() == 0


def test_a_wrapper_that_somebody_replaced_is_left_to_them() -> None:
    """Taking ours away must not undo what another tool has put over it meanwhile."""

    class Target:
        def method(self) -> str:
            return "original"

    wrappers = Wrappers()
    wrappers.wrap(Target, "method", make_wrapper)
    ours = Target.method

    def theirs(self: Any) -> str:
        return "theirs, then " + ours(self)

    Target.method = theirs  # type: ignore[method-assign]
    wrappers.remove()

    assert Target().method() == "theirs, then original"
