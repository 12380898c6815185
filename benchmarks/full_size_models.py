"""Full-size models with random weights and what is asked of them, with tiny twins for a rehearsal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepscope.workload.arguments import GenerationRequest
from stepscope.workload.request import LoadFormat, LoadRequest

PROMPT = "A Logo With Bold Large Text: SGL Diffusion"
QWEN = "Qwen/Qwen-Image"
FLUX = "black-forest-labs/FLUX.1-dev"
WAN = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
TINY = {QWEN: "tiny/qwen-image", FLUX: "tiny/flux.1-dev", WAN: "tiny/wan2.1-t2v-1.3b"}


def dummy(model: str, **options: Any) -> LoadRequest:
    """The model with random weights."""
    return LoadRequest(model=model, load_format=LoadFormat.DUMMY, **options)


def asked(steps: int, **options: Any) -> GenerationRequest:
    """So many steps of the prompt, with the seed that all of these benchmarks have."""
    return GenerationRequest(prompt=PROMPT, seed=0, steps=steps, **options)


def tiny_twin(full: LoadRequest) -> LoadRequest:
    """The same load of the tiny model with the same architecture."""
    return replace(full, model=TINY[full.model], denoiser_layers=None)


def recompiles() -> int:
    """Graphs that torch.compile made in this process so far, those that replaced others included."""
    from torch._dynamo.utils import counters

    return counters["stats"].get("unique_graphs", 0) + sum(counters["recompiles"].values())
