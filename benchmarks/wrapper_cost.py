"""What the benchmarks of a wrapper's cost share: a scheduler that costs nothing, and how a result is told."""

from __future__ import annotations

import platform
import statistics
import sys
from typing import Any

import torch

REPETITIONS = 101


class Scheduler:
    """The smallest thing that is watched: its own cost is nothing, so the wrapper's is all there is."""

    order = 1

    def set_timesteps(self, steps: int) -> None:
        pass

    def step(self, noise: Any, sample: Any) -> Any:
        return sample


def spread(samples: list[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile."""
    tenths = statistics.quantiles(samples, n=10)
    return {
        "median": round(statistics.median(samples), 4),
        "p10": round(tenths[0], 4),
        "p90": round(tenths[-1], 4),
    }


def circumstances(benchmark: str, device: torch.device) -> dict[str, Any]:
    """What a figure counts with: the command, the machine, the torch, the device, how often."""
    return {
        "benchmark": benchmark,
        "command": " ".join(["python", *sys.argv]),
        "machine": platform.platform(),
        "torch": torch.__version__,
        "device": str(device),
        "repetitions": REPETITIONS,
    }
