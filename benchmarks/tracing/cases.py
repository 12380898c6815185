"""The models and requests whose tracing is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from full_size_models import FLUX, QWEN, WAN, asked, dummy, tiny_twin
from stepscope.workload.arguments import GenerationRequest
from stepscope.workload.request import CompileKind, LoadRequest, Offload, OffloadKind

STEPS, TRACED = 9, 5  # the last three are untraced: what they take in the same request is compared too
DETAILS = ("source", "kernels", "ops", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model and request to measure."""

    load: LoadRequest
    request: GenerationRequest
    pairs: int = 2
    warmups: int = 2
    graphs: bool = False
    pauses_too: bool = False  # also ``source`` with the profiler started and stopped inside the call
    details: tuple[str, ...] = DETAILS


SMALL: dict[str, Any] = {"negative_prompt": "blurry", "true_cfg_scale": 4.0, "height": 256, "width": 256}
LARGE = SMALL | {"height": 1024, "width": 1024}
CASES = {
    "launch_bound": Case(
        load=dummy(QWEN, denoiser_layers=4), request=asked(STEPS, **SMALL), pairs=20, pauses_too=True
    ),
    "qwen": Case(load=dummy(QWEN), request=asked(STEPS, **LARGE)),
    "wan": Case(
        load=dummy(WAN),
        request=asked(STEPS, negative_prompt="blurry", height=480, width=832, frames=33),
    ),
    "compile": Case(
        load=dummy(QWEN, denoiser_layers=20, compile=CompileKind.REGIONAL),
        request=asked(STEPS, **LARGE),
        warmups=3,
    ),
    "graphs": Case(
        load=dummy(FLUX, denoiser_layers=4),
        request=asked(STEPS, height=512, width=512),
        warmups=3,
        graphs=True,
        pairs=8,
    ),
    "offload": Case(
        load=dummy(QWEN, denoiser_layers=20, offload=Offload(kind=OffloadKind.BLOCK)),
        request=asked(STEPS, **LARGE),
    ),
}


def rehearsal(case: Case) -> Case:
    """The same case on a tiny model; graphs need a GPU, so that case runs without them."""
    load = replace(tiny_twin(case.load), compile=CompileKind.NONE)
    request = replace(case.request, height=None, width=None, frames=None)
    return replace(case, load=load, request=request, pairs=2, warmups=1, graphs=False)
