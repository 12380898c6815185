"""Offloading: moves are rows of their own, not part of the stage in which a hook ran."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import pipelines
from observing import observe
from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.summarise import summarise
from stepscope.capture.fake import FakeDevice, FakeDeviceClock
from stepscope.model.vocabulary import CopyKind

BYTES = 4 * (4 * 4 + 4)
"""A linear layer of 4 by 4 with its bias, in float32."""


def group_offloaded(module: Any) -> None:
    from diffusers.hooks import apply_group_offloading

    cpu = torch.device("cpu")
    apply_group_offloading(module, onload_device=cpu, offload_device=cpu, offload_type="leaf_level")


def test_group_offloading_moves_are_counted_by_component_and_direction() -> None:
    """Each forward loads the layer and lets it go: three moves each way, named after the component."""
    pipeline = pipelines.ToyPipeline()
    group_offloaded(pipeline.transformer)

    run = observe(pipeline, pipeline).run

    moves = {(t.component, t.kind): (t.count, t.bytes) for t in run.transfers}
    assert moves == {
        ("transformer", CopyKind.HOST_TO_DEVICE): (3, 3 * BYTES),
        ("transformer", CopyKind.DEVICE_TO_HOST): (3, 3 * BYTES),
    }
    assert all(transfer.pinned is False for transfer in run.transfers)


def test_bare_parameters_belong_to_the_component_that_asked_and_empty_groups_are_no_moves() -> None:
    """Seen on a GPU: what leaves do not hold is a group without modules, and some groups hold nothing."""
    pipeline = pipelines.ToyPipeline()
    group_offloaded(pipeline.vae)  # all its weights are in leaves
    pipeline.transformer.register_parameter("table", torch.nn.Parameter(torch.zeros(8), requires_grad=False))
    group_offloaded(pipeline.transformer)

    run = observe(pipeline, pipeline).run

    onloads = {t.component: t.bytes for t in run.transfers if t.kind is CopyKind.HOST_TO_DEVICE}
    assert "unknown" not in onloads
    assert onloads["transformer"] == 3 * (BYTES + 8 * 4)
    assert all(t.bytes for t in run.transfers)


def test_the_time_of_a_move_is_not_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 ms of copying on the computing stream are exposed, and no step or forward has them."""
    from diffusers.hooks.group_offloading import ModuleGroup

    device = FakeDevice()
    pipeline = pipelines.ToyPipeline()
    group_offloaded(pipeline.transformer)
    monkeypatch.setattr(ModuleGroup, "_onload_from_memory", lambda self: device.launch(ms=10))

    run = observe(pipeline, pipeline, clock=FakeDeviceClock(device)).run

    onload = next(t for t in run.transfers if t.kind is CopyKind.HOST_TO_DEVICE)
    assert (onload.duration_ns, onload.exposed_ns) == (30_000_000, 30_000_000)
    assert [step.span.duration_ns for step in run.steps] == [0, 0, 0]
    assert run.total_ns == 30_000_000
    dump = reconcile(run)
    assert dump.unaccounted_ms == 0  # the moves are in the total, in a row of their own
    assert dump.coverage == 1
    assert summarise(replace(dump, unaccounted_ms=None)).unaccounted_ms == 0
    assert not any("in no stage" in reason for reason in dump.trust.reasons)


def test_a_move_on_its_own_stream_is_hidden_behind_the_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream's own marks give the duration; the computing stream did not wait, so nothing is exposed."""
    from diffusers.hooks.group_offloading import ModuleGroup

    device, side = FakeDevice(), FakeDevice()
    pipeline = pipelines.ToyPipeline()
    group_offloaded(pipeline.transformer)

    def onload(self: Any) -> None:
        side.host_ns = device.host_ns
        side.launch(ms=10)

    monkeypatch.setattr(ModuleGroup, "_onload_from_memory", onload)
    monkeypatch.setattr(ModuleGroup, "_offload_to_memory", lambda self: None)
    monkeypatch.setattr(ModuleGroup, "stream", side, raising=False)
    for hook in _groups(pipeline.transformer):
        hook.group.stream = side

    clock = FakeDeviceClock(device)
    run = observe(pipeline, pipeline, clock=clock).run

    onload_row = next(t for t in run.transfers if t.kind is CopyKind.HOST_TO_DEVICE)
    assert (onload_row.duration_ns, onload_row.exposed_ns, onload_row.pinned) == (30_000_000, 0, True)
    offload_row = next(t for t in run.transfers if t.kind is CopyKind.DEVICE_TO_HOST)
    assert offload_row.bytes == 0  # the pinned originals are pointed at again
    assert clock.held == 0


def _groups(module: Any) -> list[Any]:
    found = []
    for inner in module.modules():
        registry = getattr(inner, "_diffusers_hook", None)
        if registry is not None:
            found += [hook for hook in registry.hooks.values() if hasattr(hook, "group")]
    return found


def test_model_offloading_is_recognised() -> None:
    """accelerate's hook moves a whole model before its forward and the one before it away."""
    from accelerate.hooks import CpuOffload, add_hook_to_module

    pipeline = pipelines.ToyPipeline()
    add_hook_to_module(pipeline.transformer, CpuOffload(execution_device=torch.device("meta")))
    pipeline.transformer._old_forward = lambda sample, timestep: torch.ones(1, 4)

    run = observe(pipeline, pipeline).run

    (transfer,) = run.transfers
    assert (transfer.component, transfer.kind) == ("transformer", CopyKind.HOST_TO_DEVICE)
    assert (transfer.count, transfer.bytes) == (1, BYTES)  # it is there for the later steps


def test_sequential_offloading_is_recognised() -> None:
    """accelerate's per-layer hook loads each layer from its map before its forward."""
    from accelerate import cpu_offload

    pipeline = pipelines.ToyPipeline()
    cpu_offload(pipeline.transformer, execution_device=torch.device("cpu"))
    expected = pipeline()

    call = observe(pipeline, pipeline)

    (transfer,) = call.run.transfers
    assert torch.equal(call.result, expected)
    assert (transfer.component, transfer.count, transfer.bytes) == ("transformer", 3, 3 * BYTES)


@pytest.mark.parametrize("pattern", [(False, True, False), (True, False, True)])
def test_offloading_a_compiled_part_adds_no_graph(pattern: tuple[bool, ...]) -> None:
    """Hooks inside a compiled region are wrapped and unwrapped without a new break or a recompilation."""
    from compilations import compile_counts

    def counted(observed: tuple[bool, ...]) -> list[int]:
        torch._dynamo.reset()
        pipeline = pipelines.ToyPipeline()
        group_offloaded(pipeline.transformer)
        pipeline.transformer.compile(backend="eager")
        before = compile_counts()
        for this in observed:
            if this:
                observe(pipeline, pipeline)
            else:
                pipeline()
        return [after - start for after, start in zip(compile_counts(), before, strict=True)]

    assert counted(pattern) == counted((False, False, False))
