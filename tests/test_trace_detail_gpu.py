"""Lean tracing on a CUDA device: collection is switched, kernels have lines. Never in CI."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import stepscope
from stepscope.capture.profiler import can_toggle

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """Three steps of tiny Qwen-Image at ``source``."""
    folder = tmp_path_factory.mktemp("logs")
    [result] = stepscope.generate(
        prompt="a cat", num_inference_steps=8, num_profiled_timesteps=3, profile=True, profile_dir=folder,
        save_output=False,
    )  # fmt: skip
    return result, json.loads(gzip.decompress(Path(result.trace_path).read_bytes()))


def test_collection_can_be_switched_on_this_machine() -> None:
    """Otherwise the profiler stops inside the call, which takes seconds."""
    assert can_toggle("cuda")


def test_kernels_of_the_steps_have_their_lines(traced: tuple[Any, dict[str, Any]]) -> None:
    """Nearly all with operator, module and exact line, bound to their launches."""
    kernels = [event for event in traced[1]["traceEvents"] if event.get("cat") == "kernel"]

    assert len(kernels) > 300
    exact = [event for event in kernels if "source" in event["args"] and event["args"].get("exact", True)]
    assert len(exact) >= 0.98 * len(kernels)
    assert all("operator" in event["args"] for event in exact)
    assert all(event.get("flow_in") for event in kernels)
