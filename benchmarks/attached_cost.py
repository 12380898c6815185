"""What an attached session that traces nothing costs: per step, per known call, per pipeline call.

    python benchmarks/attached_cost.py            # on the CPU
    python benchmarks/attached_cost.py --device cuda

A loop of denoiser forwards and scheduler steps is called plain and in an attached session, in turn, with few
and with many steps: the difference of the two lengths is what a step costs, the rest is what a call costs.
On a CPU the thread's processor time is read, so that other work on the machine does not count; on a device
wall time. Compilations and graph breaks are counted with and without the session. Prints JSON: medians, 10th
and 90th percentile of the repetitions.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from typing import Any
from unittest import mock

import torch
from tqdm.auto import tqdm

import stepscope
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.load import load
from stepscope.workload.request import LoadRequest
from wrapper_cost import REPETITIONS, Scheduler, circumstances, spread

FEW, MANY = 10, 210
CALLS_A_STEP = 3  # forward, scheduler, progress bar
LIMIT_STEP_US = 20.0
LIMIT_CALL_US = 1.0
REAL_CALLS = 31


class Denoiser(torch.nn.Module):
    """A forward that is little more than a call."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width, width)

    def forward(self, sample: Any, timestep: int) -> Any:
        return self.layer(sample)


class Pipeline:
    """As many steps as it is asked for; takes its own time, from the first step to the last."""

    def __init__(self, device: torch.device) -> None:
        self.scheduler = Scheduler()
        self.transformer = Denoiser(64).to(device)
        self.device = device
        self.now_ns = time.thread_time_ns if device.type == "cpu" else time.perf_counter_ns
        self.loop_ns = 0

    def __call__(self, steps: int) -> Any:
        sample = torch.ones(1, 64, device=self.device)
        bar = tqdm(total=steps, disable=True)
        begin = self.now_ns()
        with torch.no_grad():
            for step in range(steps):
                sample = self.scheduler.step(None, self.transformer(sample, step))
                bar.update()
        self.loop_ns = self.now_ns() - begin
        return sample


def timed_us(pipeline: Pipeline, steps: int) -> tuple[float, float]:
    """The loop alone, and the whole call with whatever observes it."""
    if pipeline.device.type == "cuda":
        torch.cuda.synchronize()
    begin = pipeline.now_ns()
    pipeline(steps)
    if pipeline.device.type == "cuda":
        torch.cuda.synchronize()
    return pipeline.loop_ns / 1e3, (pipeline.now_ns() - begin) / 1e3


def cost(device: torch.device) -> dict[str, Any]:
    pipeline = Pipeline(device)
    step_us, whole_step_us, call_us = [], [], []
    for repetition in range(-3, REPETITIONS):
        plain = {steps: timed_us(pipeline, steps) for steps in (FEW, MANY)}
        with stepscope.profile(pipeline):
            timed_us(pipeline, 1)  # what a session's first call finds out is not a call's
            seen = {steps: timed_us(pipeline, steps) for steps in (FEW, MANY)}
        if repetition < 0:
            continue
        loop, whole = ({n: seen[n][which] - plain[n][which] for n in (FEW, MANY)} for which in (0, 1))
        step_us.append((loop[MANY] - loop[FEW]) / (MANY - FEW))
        whole_step_us.append((whole[MANY] - whole[FEW]) / (MANY - FEW))
        call_us.append(whole[FEW] - whole_step_us[-1] * FEW)
    limit_us = LIMIT_STEP_US + CALLS_A_STEP * LIMIT_CALL_US
    return {
        "added_us_a_step_in_the_loop": spread(step_us),
        "added_us_a_known_call_in_the_loop": spread([one / CALLS_A_STEP for one in step_us]),
        "added_us_a_step_in_all": spread(whole_step_us),
        "limit_us_a_step": limit_us,
        "within_the_limit": statistics.median(whole_step_us) <= limit_us,
        "added_us_a_pipeline_call": spread(call_us),
    }


def cost_of_a_real_call(device: torch.device) -> dict[str, Any]:
    """What observation takes before and after a call of tiny/qwen-image, and how long that call is.

    A real pipeline has components to look through, and diffusers takes its time to say where it computes.
    """
    loaded = load(LoadRequest(model="tiny/qwen-image", device=device.type))
    request = GenerationRequest(prompt="a red cube", seed=0, steps=2)
    arguments = call_arguments(loaded.pipeline, request, loaded.defaults)
    now_ns = time.thread_time_ns if device.type == "cpu" else time.perf_counter_ns
    call, inside_ms, around_ms = type(loaded.pipeline).__call__, [], []

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = now_ns()
        result = call(*args, **kwargs)
        inside_ms.append((now_ns() - begin) / 1e6)
        return result

    with mock.patch.object(type(loaded.pipeline), "__call__", timed), stepscope.profile(loaded.pipeline):
        for _ in range(REAL_CALLS):
            begin = now_ns()
            loaded.pipeline(**arguments)
            around_ms.append((now_ns() - begin) / 1e6 - inside_ms[-1])
    return {"call_ms": spread(inside_ms[3:]), "before_and_after_ms": spread(around_ms[3:])}


def compilations(device: torch.device, *, observed: bool) -> tuple[int, int]:
    """Graphs and graph breaks of three calls of a compiled pipeline."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    pipeline = Pipeline(device)
    pipeline.transformer.compile(backend="eager", fullgraph=True)
    pipeline(2)
    for _ in range(3):
        if observed:
            with stepscope.profile(pipeline):
                pipeline(2)
        else:
            pipeline(2)
    pipeline(2)
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    torch.set_num_threads(1)
    alone, observed = compilations(device, observed=False), compilations(device, observed=True)
    result = {
        **circumstances("attached_cost", device),
        "steps": [FEW, MANY],
        "cost": cost(device),
        "tiny_qwen_image": cost_of_a_real_call(device),
        "graphs_and_breaks_alone": alone,
        "graphs_and_breaks_observed": observed,
        "compilations_added": observed[0] - alone[0],
        "graph_breaks_added": observed[1] - alone[1],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
