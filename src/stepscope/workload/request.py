"""What to load and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepscope.model.vocabulary import Word
from stepscope.workload.presets.spec import GenerationDefaults


class LoadFormat(Word):
    """Where weights come from."""

    AUTO = "auto"  # the hub or a folder
    DUMMY = "dummy"  # seeded random weights, no download


class OffloadKind(Word):
    """How weights are moved between host and device during a run."""

    NONE = "none"
    MODEL = "model"  # one whole component at a time
    SEQUENTIAL = "sequential"  # every leaf module on its own, no overlap
    BLOCK = "block"  # diffusers' group offload, a few repeated blocks at a time
    LEAF = "leaf"  # diffusers' group offload, every leaf module


class CompileKind(Word):
    """What torch.compile is applied to in each denoiser."""

    NONE = "none"
    REGIONAL = "regional"  # its repeated blocks, each class once
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Dtype names of component groups where they differ from the pipeline's: ``bf16``, ``float32``, ..."""

    dit: str | None = None
    vae: str | None = None
    text_encoder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Offloading as asked for.

    ``pin`` concerns BLOCK and LEAF: pinned weights are prefetched on a side stream, pageable ones are copied
    when they are needed.
    """

    kind: OffloadKind = OffloadKind.NONE
    pin: bool = True
    blocks_per_group: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Everything that decides how a pipeline is loaded; the call itself is a ``GenerationRequest``.

    ``model`` is a hub id, a local diffusers folder, or with ``LoadFormat.DUMMY`` the id of a preset; ids that
    begin with ``tiny/`` are dummy without saying so. None stands for the embedded default.
    """

    model: str | None = None
    load_format: LoadFormat = LoadFormat.AUTO
    device: str | None = None  # None: the best there is
    dtype: str | None = None  # None: bfloat16 on an accelerator, float32 on a CPU
    precision: Precision = Precision()
    revision: str | None = None
    variant: str | None = None
    trust_remote_code: bool = False
    offload: Offload = Offload()
    attention_backend: str | None = None
    compile: CompileKind = CompileKind.NONE
    image_input: bool = False  # the request will bring images: take the pipeline class that accepts them
    vae_tiling: bool = False
    vae_slicing: bool = False
    lora_path: str | None = None
    lora_scale: float = 1.0
    weight_seed: int = 0  # dummy only
    denoiser_layers: int | None = None  # dummy only: at most so many repeated blocks of each kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A pipeline ready to be called, and what was done to it, as text for ``model.run.Workload``."""

    pipeline: Any
    model: str
    random_weights: bool
    components: Mapping[str, str]  # name -> class
    device: str
    dtype: str
    offload: str = "none"
    compile: str = "none"
    attention_backend: str = "default"
    lora: str | None = None
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    notes: tuple[str, ...] = ()  # what the user should know: VAE tiling, depth cut, ...


class Progress(Protocol):
    """Told what loading is busy with. ``total`` counts components; ``done`` those finished."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def no_progress(what: str, done: int, total: int) -> None:
    """Say nothing."""
