"""How large a trace of everything will be, said before it is recorded."""

from __future__ import annotations

from stepscope.model.run import Run
from stepscope.workload.request import Loaded
from stepscope.workload.tuning import denoisers

RAW_BYTES_A_CALL = 17_000
"""Of the profiler's own export, for one call of one module with shapes and stacks.

Measured: the ten tiny presets, --profile-all-stages, torch 2.13 on a CPU: 10,900 to 28,000, median 16,600
(benchmarks/trace_size.py). A GPU adds its kernels and launches.
"""

PACKED_SHARE = 1 / 10.6
"""Of the finished file: 1/10.3 to 1/11.4 in the same measurement."""


def expected_size(loaded: Loaded, warmup_run: Run | None, steps: int | None) -> str | None:
    """A sentence with the expected size of a full trace; None where nothing tells the number of calls."""
    if steps is None or warmup_run is None or not warmup_run.steps:
        return None
    forwards = sum(len(step.forwards) for step in warmup_run.steps) / len(warmup_run.steps)
    by_name = denoisers(loaded.pipeline)
    modules = max((sum(1 for _ in module.modules()) for module in by_name.values()), default=0)
    raw_bytes = modules * forwards * steps * RAW_BYTES_A_CALL
    if not raw_bytes:
        return None
    return (
        f"tracing all stages of {steps} steps: expect about {_mb(raw_bytes * PACKED_SHARE)}, "
        f"and {_mb(raw_bytes)} beside it while it is written; --num-profiled-timesteps without "
        "--profile-all-stages is smaller"
    )


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{max(1, round(size_bytes / 1e6))} MB"
