"""What is read around a call: environment, memory, steadiness, engaged, and what a warm-up puts back."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from diffusers.models import attention_dispatch

import pipelines
from observing import observe
from stepscope.capture import memory
from stepscope.capture.engaged import attention_backend, compiled_modules
from stepscope.capture.environment import read_environment
from stepscope.capture.state import preserved_state
from stepscope.capture.steadiness import Signals, changes
from stepscope.model.run import MemoryReading


def test_the_environment_names_versions_and_machine_but_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything needed to compare two runs, and no secret that lies in a variable."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret_value")
    environment = read_environment("cpu")
    text = json.dumps(msgspec.to_builtins(environment))

    assert environment.device_kind == "cpu"
    assert environment.device_name
    assert environment.packages["torch"] == torch.__version__
    assert environment.threads == torch.get_num_threads()
    assert "hf_secret_value" not in text
    assert environment.driver is None
    assert environment.clocks == {}
    assert not any(name in text for name in os.environ if name.startswith("HF_"))


def test_memory_has_a_reason_where_there_is_no_allocator(sd: Any) -> None:
    """A CPU run says why it has no readings, instead of zeros."""
    run = observe(sd, lambda: pipelines.sd(sd)).run

    assert run.memory == ()
    assert run.memory_reason == "there is no device allocator to read on the CPU"
    assert all(stage.memory is None for stage in run.stages)


def test_each_stage_has_the_allocators_state_at_its_end(sd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings are taken where the stage changes, not in every step, and land in the stage that ended."""
    taken = iter(range(1, 100))

    def read(_device: str | None) -> MemoryReading:
        count = next(taken)
        return MemoryReading(
            allocated_bytes=count, reserved_bytes=count, peak_allocated_bytes=count, peak_reserved_bytes=count
        )

    monkeypatch.setattr(memory, "read_memory", read)
    run = observe(sd, lambda: pipelines.sd(sd, 12)).run

    allocated = [stage.memory.allocated_bytes if stage.memory else None for stage in run.stages]
    assert allocated == [2, 3, 4, 5, 6, 7, 8]
    assert [checkpoint.name for checkpoint in run.memory] == [
        "before_forward",
        *(f"after_{stage.span.name}" for stage in run.stages),
        "after_forward",
    ]
    assert run.warnings == (memory.PEAKS_NOT_RESET,)


def test_peaks_are_reset_only_in_a_process_of_our_own(sd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own peak counters are theirs."""
    resets: list[str | None] = []
    monkeypatch.setattr(memory, "reset_peaks", resets.append)

    observe(sd, lambda: pipelines.sd(sd))
    assert resets == []
    observe(sd, lambda: pipelines.sd(sd), own_process=True)
    assert resets == [None]


def test_what_makes_a_call_unsteady_is_said_in_words() -> None:
    """Compilation, captured graphs, autotuning and a growing allocator, each by its counter."""
    before = Signals(compiled_frames=1, autotunings=0, reserved_bytes=0)
    after = Signals(compiled_frames=3, autotunings=4, reserved_bytes=5 * 1024**2)

    assert changes(before, before) == ()
    assert changes(before, after, graph_captures=1) == (
        "torch.compile compiled 2 graphs",
        "1 CUDA graph captured",
        "4 kernels autotuned",
        "the allocator grew by 5 MiB",
    )


def test_a_replayed_graph_is_counted(sd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays are seen from outside; captures make the call unsteady."""
    graph_class = torch.cuda.graphs.CUDAGraph
    monkeypatch.setattr(graph_class, "replay", lambda self: None)
    monkeypatch.setattr(graph_class, "capture_begin", lambda self: None)

    def call() -> None:
        graph_class.capture_begin(None)
        for _ in range(3):
            graph_class.replay(None)

    observed = observe(sd, call)

    assert observed.run.engaged.graph_replays == 3
    assert observed.unsteady == ("1 CUDA graph captured",)


def test_engaged_names_attention_and_compiled_modules(sd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher's backend for new models, the processor's class for older ones."""
    registry = attention_dispatch._AttentionBackendRegistry
    monkeypatch.setattr(registry, "_active_backend", registry._active_backend)  # setting one sets it for all
    flux = pipelines.flux()
    assert attention_backend([flux.transformer]) == "native"
    flux.transformer.set_attention_backend("_native_math")
    assert attention_backend([flux.transformer]) == "_native_math"
    assert attention_backend([sd.unet]) == "AttnProcessor2_0"
    assert compiled_modules([sd.unet]) == 0
    for block in flux.transformer.transformer_blocks:
        block.compile(backend="eager")
    assert compiled_modules([flux.transformer, torch.compile(sd.vae, backend="eager")]) == 2


def test_the_attention_engaged_is_the_denoisers(sd: Any) -> None:
    """An autoencoder's attention says nothing about the loop."""
    flux = pipelines.flux()

    assert observe(flux, lambda: pipelines.flux_call(flux)).run.engaged.attention == "native"
    assert observe(sd, lambda: pipelines.sd(sd)).run.engaged.attention == "AttnProcessor2_0"


def numbers() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(1))]


def test_a_warm_up_leaves_random_state_and_schedulers_as_they_were() -> None:
    """Numbers drawn afterwards are those that would have been drawn, and the scheduler has taken no step."""
    pipeline = pipelines.stable_diffusion(pipelines.scheduler("EulerAncestralDiscreteScheduler"))
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(7)
    expected = numbers()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(7)
    scheduler = dict(vars(pipeline.scheduler))
    timesteps = pipeline.scheduler.timesteps.clone()

    with preserved_state(pipeline):
        numbers()
        pipeline("a cat", height=32, width=32, num_inference_steps=2, output_type="np")

    assert numbers() == expected
    assert vars(pipeline.scheduler) == scheduler
    assert torch.equal(pipeline.scheduler.timesteps, timesteps)
    assert pipeline.scheduler.num_inference_steps is None


def test_state_changed_in_place_is_put_back() -> None:
    """A list and a tensor that a scheduler changes in place have their old content again."""

    class Stateful(pipelines.ToyScheduler):
        def __init__(self) -> None:
            self.history = [1, 2]
            self.sigmas = torch.ones(3)
            self.table = {"a": 1}

    pipeline = pipelines.toy(scheduler=Stateful())
    scheduler = pipeline.scheduler
    history, sigmas = scheduler.history, scheduler.sigmas
    with preserved_state(pipeline):
        scheduler.history.append(3)
        scheduler.sigmas.mul_(2)
        scheduler.table["b"] = 2
        scheduler.new = 1

    assert scheduler.history is history
    assert scheduler.sigmas is sigmas
    assert (history, sigmas.tolist(), scheduler.table) == ([1, 2], [1.0, 1.0, 1.0], {"a": 1})
    assert not hasattr(scheduler, "new")


def test_state_is_put_back_after_a_failed_warm_up(sd: Any) -> None:
    """An exception inside goes on, and everything is as before."""
    torch.manual_seed(3)
    expected = float(torch.rand(1))
    torch.manual_seed(3)

    with pytest.raises(ValueError, match="height"), preserved_state(sd):
        torch.rand(5)
        pipelines.sd(sd, height=33)

    assert float(torch.rand(1)) == expected
