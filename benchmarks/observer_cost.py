"""What observation costs: microseconds a call, ratio of a whole call observed and not.

    python benchmarks/observer_cost.py            # the wrapper, on the CPU
    python benchmarks/observer_cost.py --device cuda

Prints JSON: medians with the spread between the 10th and the 90th percentile of the repetitions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import types
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.active import ACTIVE, ActiveCall
from stepscope.capture.devices import clock_for
from stepscope.capture.observer import Observer
from wrapper_cost import REPETITIONS, Scheduler, circumstances, spread

CALLS = 2_000
"""About as many as a long run has."""


def microseconds_a_call(call: Callable[[], Any], calls: int = CALLS) -> float:
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - begin) / calls / 1000


def wrapper_cost(device: torch.device) -> dict[str, Any]:
    """One scheduler.step: bare, wrapped but not in an observed call, and observed."""
    scheduler = Scheduler()
    pipeline = types.SimpleNamespace(scheduler=scheduler)

    def call() -> Any:
        return scheduler.step(None, None)

    clock = clock_for(device)
    bare, idle, observed = [], [], []
    for _ in range(REPETITIONS):
        bare.append(microseconds_a_call(call))
        with Observer(clock=clock) as observer:
            parts = observer.attach(pipeline)
            idle.append(microseconds_a_call(call))
            active = ActiveCall(clock, parts.table, parts.by_class)
            token = ACTIVE.set(active)
            observed.append(microseconds_a_call(call))
            ACTIVE.reset(token)
            clock.release(mark for _, _, mark, _ in active.events if mark is not None)
    return {
        "bare_us": spread(bare),
        "wrapped_outside_a_call_us": spread(idle),
        "observed_us": spread(observed),
        "added_outside_us": round(statistics.median(idle) - statistics.median(bare), 4),
        "added_observed_us": round(statistics.median(observed) - statistics.median(bare), 4),
        "ratio_observed": round(statistics.median(observed) / statistics.median(bare), 2),
    }


class Denoiser(torch.nn.Module):
    """A small transformer-like stack, so that a step takes a realistic few milliseconds."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(depth)))

    def forward(self, sample: Any, timestep: int) -> Any:
        return self.layers(sample)


def whole_call(device: torch.device, steps: int = 50) -> dict[str, Any]:
    """A loop of forwards and steps, observed and not, interleaved; the ratio of each pair."""
    scheduler = Scheduler()
    denoiser = Denoiser(128, 4).to(device)
    sample = torch.randn(16, 128, device=device)
    pipeline = types.SimpleNamespace(scheduler=scheduler, transformer=denoiser, device=device)

    def call() -> None:
        with torch.no_grad():
            current = sample
            for step in range(steps):
                current = scheduler.step(None, denoiser(current, step))

    clock = clock_for(device)

    def timed(work: Callable[[], Any]) -> float:
        clock.synchronise()
        begin = time.perf_counter_ns()
        work()
        clock.synchronise()
        return (time.perf_counter_ns() - begin) / 1e6

    call()
    plain, observed = [], []
    for _ in range(REPETITIONS):
        plain.append(timed(call))
        with Observer(clock=clock) as observer:
            progress = observer.begin(pipeline)
            observed.append(timed(call))
            progress.finish()
    ratios = [after / before for before, after in zip(plain, observed, strict=True)]
    added = [(after - before) * 1000 / steps for before, after in zip(plain, observed, strict=True)]
    return {
        "steps": steps,
        "plain_ms": spread(plain),
        "observed_ms": spread(observed),
        "ratio": spread(ratios),
        "added_us_a_step": spread(added),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    torch.set_num_threads(1)
    result = {
        **circumstances("observer_cost", device),
        "calls": CALLS,
        "wrapper": wrapper_cost(device),
        "whole_call": whole_call(device),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
