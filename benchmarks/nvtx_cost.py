"""What NVTX ranges cost: observed calls without ranges, with stage and step ranges, with a range per module.

    python benchmarks/nvtx_cost.py --runs 15 --out results.json            # no profiler attached
    nsys profile --trace=nvtx ... python benchmarks/nvtx_cost.py ...       # recorded

The three ways take turns (A B C, C B A, ...). Times are the process's CPU time: the model runs on the CPU, in
one thread, and other programs on the machine do not count. The cost of a range is the added time over the
ranges added.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from stepscope.capture.environment import read_environment
from stepscope.capture.nsight.marker import NvtxMarker, NvtxRequest
from stepscope.model.run import Workload
from stepscope.session.observe import ObserveOptions, observe_call
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.load import load
from stepscope.workload.request import LoadRequest

WAYS = ("none", "ranges", "layers")


class CountingMarker(NvtxMarker):
    """Counts the ranges too."""

    count = 0

    def push(self, name: str) -> None:
        self.count += 1
        super().push(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny/qwen-image")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load(LoadRequest(model=arguments.model))
    loaded.pipeline.set_progress_bar_config(disable=True)
    request = GenerationRequest(prompt="a logo", seed=0, steps=arguments.steps)
    environment = read_environment(loaded.device)
    workload = Workload(model=arguments.model, pipeline_class=type(loaded.pipeline).__name__)
    counts: dict[str, int] = {}

    def call(way: str) -> float:
        marker = CountingMarker()
        nvtx = None if way == "none" else NvtxRequest(marker=marker, layers=way == "layers")
        values = call_arguments(loaded.pipeline, request, loaded.defaults)
        begin = time.process_time()
        observe_call(
            loaded.pipeline, lambda: loaded.pipeline(**values), request_id="bench", workload=workload,
            environment=environment, options=ObserveOptions(own_process=True, nvtx=nvtx),
        )  # fmt: skip
        counts[way] = marker.count
        return time.process_time() - begin

    for way in WAYS:
        call(way)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(arguments.runs):
        for way in WAYS if turn % 2 == 0 else reversed(WAYS):
            times[way].append(call(way))
    result: dict[str, Any] = {
        "model": arguments.model,
        "steps": arguments.steps,
        "machine": environment.device_name,
    }
    for way in WAYS:
        ratios = [one / base for one, base in zip(times[way], times["none"], strict=True)]
        added = [1e6 * (one - base) for one, base in zip(times[way], times["none"], strict=True)]
        result[way] = {
            "ranges": counts[way],
            "seconds": [min(times[way]), statistics.median(times[way]), max(times[way])],
            "ratio": [min(ratios), statistics.median(ratios), max(ratios)],
            "us_per_range": statistics.median(added) / counts[way] if counts[way] else 0.0,
        }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
