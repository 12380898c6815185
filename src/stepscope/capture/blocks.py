"""Modular pipelines: their leaf blocks are known calls, as the methods of a classic pipeline are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stepscope.capture.components import Known, Methods, attributes_of
from stepscope.model.recording import CallKind

BLOCK_KINDS: tuple[tuple[re.Pattern[str], CallKind], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"ProcessImagesOutput|Postprocess|AfterDecode", CallKind.POSTPROCESSING),
        (r"Vae(Image)?Encode|ProcessImagesInput|Resize|VideoEncode|Preprocess", CallKind.VAE_ENCODING),
        (r"Text\w*Encoder|VLEncoder|Prompt(Enhancer|Upsample)|TextConnector", CallKind.TEXT_ENCODING),
        (r"(Image|Clip|Video)\w*Encoder|IPAdapter", CallKind.IMAGE_ENCODING),
        (r"SetTimesteps|SchedulerReset", CallKind.TIMESTEPS),
        (r"Decoder?Step|AfterDenoise|UnpackLatents", CallKind.DECODING),
        (r"PrepareLatents|Inputs?Step|RoPE|Coords|Conditioning|PackLatents", CallKind.LATENTS),
    )
)
"""By the names of diffusers' block classes (0.42.1). Denoising blocks are not here: they hold known calls."""


def blocks_of(pipeline: Any) -> Iterator[tuple[str, Any, Methods]]:
    """``(path, block, methods)`` of each leaf block whose class tells what it does; none for classic ones."""
    root = attributes_of(pipeline).get("_blocks")
    if root is not None:
        yield from _leaves(root, "blocks")


def _leaves(block: Any, path: str) -> Iterator[tuple[str, Any, Methods]]:
    if any(base.__name__ == "LoopSequentialPipelineBlocks" for base in type(block).__mro__):
        return  # the denoising loop: what it calls is known, and its blocks run in every step
    inner = getattr(block, "sub_blocks", None) or {}
    for name, sub_block in inner.items():
        yield from _leaves(sub_block, f"{path}.{name}")
    kind = None if inner else block_kind(type(block).__name__)
    if kind is not None:
        yield path, block, {"__call__": Known(kind, path, "")}


def block_kind(class_name: str) -> CallKind | None:
    """What a block does; None for denoising blocks and those whose name tells nothing."""
    if re.search(r"(?<!After)(?<!Before)Denoise", class_name):
        return None
    return next((kind for pattern, kind in BLOCK_KINDS if pattern.search(class_name)), None)
