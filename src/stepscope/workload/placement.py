"""Which device and which dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stepscope.model.errors import UsageError
from stepscope.workload.dtypes import DENOISERS
from stepscope.workload.request import Precision

if TYPE_CHECKING:
    import torch

DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "float16": "float16",
    "fp32": "float32",
    "float": "float32",
    "float32": "float32",
}
"""Accepted spellings, SGLang's and torch's, to torch's names."""

DEVICE_ORDER = ("cuda", "xpu", "mps")
"""Tried in this order when no device is named; ROCm builds call theirs cuda."""


def choose_device(name: str | None, *, flag: str = "--device") -> torch.device:
    """The device of this name, or the best there is. Raises UsageError if it does not exist here."""
    import torch

    if name is None or name == "auto":
        return torch.device(next((kind for kind in DEVICE_ORDER if device_count(kind)), "cpu"))
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(
            f"{flag} {name!r} is not a device torch knows.", remedy=f"Here: {', '.join(_devices())}."
        ) from None
    count = 1 if device.type == "cpu" else device_count(device.type)
    if (device.index or 0) >= count:
        raise UsageError(
            f"{flag} {name}: there is no such device here.", remedy=f"Available: {', '.join(_devices())}."
        )
    return device


def device_count(kind: str) -> int:
    """How many devices of this kind can be used here."""
    import torch

    if kind == "mps":
        return int(torch.backends.mps.is_available())
    backend = getattr(torch, kind, None)
    return int(backend.device_count()) if backend is not None and backend.is_available() else 0


def _devices() -> list[str]:
    return [f"{kind}:{index}" for kind in DEVICE_ORDER for index in range(device_count(kind))] + ["cpu"]


def choose_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The dtype of this name; unnamed, bfloat16 on an accelerator and float32 on a CPU."""
    if name is None or name == "auto":
        return parse_dtype("float32" if device.type == "cpu" else "bfloat16")
    return parse_dtype(name)


def parse_dtype(name: str) -> torch.dtype:
    """A torch dtype by any accepted spelling. Raises UsageError for others."""
    import torch

    canonical = DTYPES.get(name.lower().removeprefix("torch."))
    if canonical is None:
        raise UsageError(f"{name!r} is not a dtype to run in.", remedy="Use bf16, fp16 or fp32.")
    dtype: torch.dtype = getattr(torch, canonical)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """``bfloat16`` for ``torch.bfloat16``."""
    return str(dtype).removeprefix("torch.")


def component_dtypes(
    names: Iterable[str], base: torch.dtype, asked: Precision, published: Mapping[str, str]
) -> dict[str, torch.dtype]:
    """The dtype of each component: what was asked, else the published usage, else ``base``.

    Published usage only ever raises the precision, so a run in float32 stays in float32.
    """
    dtypes = {}
    for name in names:
        explicit = _asked(asked, name)
        usual = parse_dtype(published[name]) if name in published else base
        dtypes[name] = (
            parse_dtype(explicit) if explicit else max(base, usual, key=lambda dtype: dtype.itemsize)
        )
    return dtypes


def _asked(precision: Precision, component: str) -> str | None:
    """Which of the three groups a component belongs to is told by diffusers' component names."""
    if component.startswith(DENOISERS):
        return precision.dit
    if component.startswith(("vae", "vqgan", "vqvae", "movq")):
        return precision.vae
    if component.startswith("text_encoder"):
        return precision.text_encoder
    return None
