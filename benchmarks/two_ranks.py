"""A program for torchrun: every rank runs a pipeline and all agree on the latents after each step.

    torchrun --nproc-per-node 2 --no-python stepscope run --profile --perf-dump-path perf.json \\
        benchmarks/two_ranks.py tiny/flux.1-dev
    stepscope report logs/*rank0*.gz logs/*rank1*.gz perf.json perf-rank1.json
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist

from stepscope.workload.load import load
from stepscope.workload.request import LoadFormat, LoadRequest


def agree(_pipeline: Any, _step: int, _timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The mean of all ranks' latents."""
    dist.all_reduce(values["latents"])
    values["latents"] /= dist.get_world_size()
    return values


def main() -> None:
    model, *options = sys.argv[1:]
    rank, on_gpu = int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    layers = int(options[0]) if options else None
    loaded = load(LoadRequest(model=model, load_format=LoadFormat.DUMMY, denoiser_layers=layers))
    for _ in range(2):  # the first call warms up
        picture = loaded.pipeline(
            "a red cube",
            num_inference_steps=8,
            height=512 if on_gpu else 64,
            width=512 if on_gpu else 64,
            generator=torch.Generator("cpu").manual_seed(rank),
            callback_on_step_end=agree,
            output_type="np",
        ).images[0]
    print(f"rank {rank}: {picture.shape}, mean {picture.mean():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
