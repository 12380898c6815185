"""Bytes of a full trace for one call of one denoiser module: python benchmarks/trace_size.py.

Prints one line for each tiny preset. It is where the constants of session/trace_forecast.py come from.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

import stepscope
from stepscope.session import keep_trace
from stepscope.workload.load import load
from stepscope.workload.presets import PRESETS
from stepscope.workload.request import LoadRequest
from stepscope.workload.tuning import denoisers


def measure(model: str, folder: Path) -> tuple[float, float]:
    """Raw bytes for a module call, and the finished file's share of the raw bytes."""
    raw_sizes: list[int] = []
    write = keep_trace.write_trace

    def sized(raw: Path, *arguments: object) -> object:
        raw_sizes.append(raw.stat().st_size)
        return write(raw, *arguments)

    keep_trace.write_trace = sized
    try:
        [result] = stepscope.generate(
            model_path=model,
            prompt="x",
            profile=True,
            profile_all_stages=True,
            trace_detail="full",
            profile_dir=folder,
            save_output=False,
            warmup=False,
        )
    finally:
        keep_trace.write_trace = write
    pipeline = load(LoadRequest(model=model)).pipeline
    modules = sum(1 for module in denoisers(pipeline).values() for _ in module.modules())
    forwards = sum(len(step.forwards) for step in result.run.steps)
    return raw_sizes[0] / (modules * forwards), result.trace_path.stat().st_size / raw_sizes[0]


def main() -> None:
    per_call, shares = [], []
    with tempfile.TemporaryDirectory() as folder:
        for model in (name for name in PRESETS if name.startswith("tiny/")):
            raw, share = measure(model, Path(folder))
            per_call.append(raw)
            shares.append(share)
            print(f"{model:32} {raw:8.0f} B a module call, packed to 1/{1 / share:.1f}")
    print(f"{'median':32} {median(per_call):8.0f} B a module call, packed to 1/{1 / median(shares):.1f}")


if __name__ == "__main__":
    main()
