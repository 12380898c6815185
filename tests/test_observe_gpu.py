"""Observation on a CUDA device: what the fake clock cannot show. Never in CI."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

import pipelines
from observing import observe
from stepscope.capture.devices import clock_for, self_test
from stepscope.capture.observer import Observer
from stepscope.model.vocabulary import ClockKind, CopyKind, TraceDetail
from stepscope.session.observe import TraceRequest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDTH = 4096


class Denoiser(torch.nn.Module):
    """Eight big matrix products: some ten milliseconds that the host issues in one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(8))

    def forward(self, sample: Any, timestep: int) -> Any:
        for layer in self.layers:
            sample = layer(sample)
        return sample * 1e-3


class Pipeline:
    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        self.scheduler = pipelines.ToyScheduler()
        self.transformer = Denoiser().to(self.device)
        self.vae = pipelines.ToyDecoder()
        self.steps = 10

    def __call__(self) -> Any:
        sample = torch.ones(WIDTH, WIDTH, device=self.device)
        with torch.no_grad():
            for step in range(self.steps):
                sample = self.scheduler.step(self.transformer(sample, step), sample)
            return self.vae.decode(sample)


@pytest.fixture(scope="module")
def pipeline() -> Any:
    made = Pipeline()
    made()
    return made


def test_the_devices_events_pass_the_self_test() -> None:
    """CUDA events tell a known wait."""
    clock = clock_for(torch.device("cuda"))

    assert clock.description.kind is ClockKind.DEVICE_EVENTS
    assert clock.description.self_test.startswith("passed")
    assert self_test(clock._backend) is None  # type: ignore[attr-defined]


def test_steps_are_the_devices_and_sum_to_the_wall_time(pipeline: Any) -> None:
    """Uniform steps in spite of asynchronous launches; stages sum to the independently taken total."""
    run = observe(pipeline, pipeline, own_process=True).run
    steps = [step.span.duration_ns for step in run.steps]

    assert max(steps[1:]) < 1.5 * statistics.median(steps)
    assert run.steps[5].span.host_ns < steps[5]
    total = run.total_ns or 0
    assert abs(total - sum(stage.span.duration_ns for stage in run.stages)) < 0.02 * total
    assert run.memory[-1].reading.peak_allocated_bytes > 8 * WIDTH * WIDTH * 4


def test_the_trace_has_the_kernels_of_the_window(pipeline: Any, tmp_path: Path) -> None:
    """Kernels of steps 0 to 3 are in the raw export, none of them cut off by the stop."""
    request = TraceRequest(steps=3, scratch_dir=tmp_path, detail=TraceDetail.OPS)
    call = observe(pipeline, pipeline, trace=request)
    assert call.raw_trace is not None
    events = json.loads(call.raw_trace.path.read_text())["traceEvents"]
    products = [e for e in events if e.get("cat") == "kernel" and "gemm" in e["name"].lower()]

    assert len(products) == 4 * 8
    assert call.raw_trace.steps == (1, 2, 3)


def test_a_captured_graph_is_replayed_and_counted(pipeline: Any) -> None:
    """No event is recorded under capture; replays are timed from outside."""
    graph = torch.cuda.CUDAGraph()
    sample = torch.ones(WIDTH, WIDTH, device="cuda")

    def call() -> None:
        with torch.no_grad():
            with torch.cuda.graph(graph):
                pipeline.transformer(sample, 0)
            for _ in range(3):
                graph.replay()

    observed = observe(pipeline, call)

    assert observed.error is None
    assert observed.run.engaged.graph_replays == 3
    assert "1 CUDA graph captured" in observed.unsteady
    assert sum(stage.span.duration_ns for stage in observed.run.stages) > 0


@pytest.mark.parametrize("use_stream", [False, True])
def test_group_offloading_is_a_row_of_its_own(use_stream: bool) -> None:
    """Pageable moves on the computing stream are exposed, pinned ones on a stream of their own mostly not."""
    from diffusers.hooks import apply_group_offloading

    pipeline = Pipeline()
    pipeline.transformer.to("cpu")
    apply_group_offloading(
        pipeline.transformer,
        onload_device=torch.device("cuda"),
        offload_device=torch.device("cpu"),
        offload_type="leaf_level",
        use_stream=use_stream,
    )
    pipeline()
    run = observe(pipeline, pipeline).run
    onload = next(t for t in run.transfers if t.kind is CopyKind.HOST_TO_DEVICE)

    assert onload.bytes == pipeline.steps * 8 * WIDTH * WIDTH * 4
    assert onload.pinned is use_stream
    assert 0 < onload.bytes / onload.duration_ns < 100  # GB/s
    if not use_stream:
        assert onload.exposed_ns == onload.duration_ns


def test_events_do_not_pile_up(pipeline: Any) -> None:
    """The clock of a session reuses its events."""
    clock = clock_for(torch.device("cuda"))
    with Observer(clock=clock) as observer:
        for _ in range(3):
            progress = observer.begin(pipeline)
            pipeline()
            progress.finish()
            free = len(clock._free)  # type: ignore[attr-defined]

    assert free == 2 + 2 * (2 * pipeline.steps + 1)
