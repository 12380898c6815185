"""The process around a survey: one thread, quiet libraries, torchvision where it can be had."""

from __future__ import annotations

import importlib.util
from typing import Any

_KEPT: list[Any] = []
_NEEDED = ("nms", "qnms")


def prepare() -> None:
    """Make this process fit for a survey. Call before diffusers or transformers are imported."""
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("torchvision") is not None:
        _declare_operators()
    import diffusers
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    diffusers.logging.set_verbosity_error()


def _declare_operators() -> None:
    """Let a torchvision built for CUDA be imported beside a CPU torch.

    Its compiled part does not load there; the pipelines only need its picture transforms, which are Python.
    """
    import torch

    try:
        import torchvision  # noqa: F401
    except (RuntimeError, ImportError):
        library = torch.library.Library("torchvision", "DEF")
        for name in _NEEDED:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)  # the definition lives as long as this object
