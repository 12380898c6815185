"""Which dtype the weights of each component of a pipeline have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

DENOISERS = ("transformer", "unet", "prior", "decoder")
"""diffusers' names for the networks that predict noise begin so."""


def dtypes_of(parts: Mapping[str, Any]) -> dict[str, str]:
    """The dtype of each module among named parts, by name.

    A module without a weight is left out, and so is one that does not let itself be looked through (not
    initialised, a wrapper with attributes of its own kind): the call is observed without it.
    """
    import torch

    found = {}
    for name, part in parts.items():
        if issubclass(type(part), torch.nn.Module):
            with suppress(Exception):
                found[name] = weights_dtype(part)
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def weights_dtype(module: Any) -> str | None:
    """The dtype of the first floating-point weight that the model does not keep in float32 on purpose.

    Not the module's own ``dtype``: that of diffusers walks over all layers, at each call that is observed.
    """
    kept = getattr(module, "_keep_in_fp32_modules", None) or ()
    kept = (kept,) if isinstance(kept, str) else tuple(kept)
    first = None
    for name, weight in module.named_parameters():
        dtype = str(weight.dtype).removeprefix("torch.")
        first = first or dtype
        if weight.is_floating_point() and not any(part in name for part in kept):
            return dtype
    return first


def denoisers_dtype(dtypes: Mapping[str, str]) -> str | None:
    """The dtype that most of a call's work is done in; None where no component is named as a denoiser."""
    return next((dtype for name, dtype in dtypes.items() if name.startswith(DENOISERS)), None)
