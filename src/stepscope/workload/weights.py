"""Seeded random weights, made directly on a device in the wanted dtype.

A module is built with its parameters on the meta device and its buffers real, so rotary tables, position ids
and batch-norm statistics are what the architecture says; then each parameter is created once, in place.
There is never a second copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@contextmanager
def empty_parameters(dtype: torch.dtype) -> Iterator[None]:
    """Build modules inside with meta parameters and real buffers, as both libraries' loaders do.

    The default dtype is ``dtype`` meanwhile, so buffers get the dtype that loading real weights gives them.
    """
    import torch
    from accelerate import init_empty_weights

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with init_empty_weights(include_buffers=False):
            yield
    finally:
        torch.set_default_dtype(before)


def fill(
    module: torch.nn.Module,
    *,
    generator: torch.Generator,
    device: torch.device,
    dtype_of: Callable[[str], torch.dtype],
) -> None:
    """Replace every meta parameter of ``module`` by random values on ``device``.

    Values are drawn on the generator's device (a GPU fills a billion weights in milliseconds, a CPU in
    seconds) and moved one by one where ``device`` is another. Tied parameters stay tied. ``dtype_of`` gets
    the parameter's full name.
    """
    import torch

    made: dict[int, torch.nn.Parameter] = {}
    for prefix, owner in module.named_modules():
        for name, empty in list(owner._parameters.items()):
            if empty is None:
                continue
            if id(empty) not in made:
                value = torch.empty(empty.shape, dtype=dtype_of(f"{prefix}.{name}"), device=generator.device)
                _draw(value, owner, name, generator)
                made[id(empty)] = torch.nn.Parameter(value.to(device), requires_grad=False)
            owner._parameters[name] = made[id(empty)]
        for name, buffer in list(owner._buffers.items()):
            if buffer is not None:
                owner._buffers[name] = buffer.to(device)


def _draw(value: torch.Tensor, owner: torch.nn.Module, name: str, generator: torch.Generator) -> None:
    """Variance-preserving values: every layer's output stays of the size of its input, in any dtype."""
    import torch

    is_norm = "norm" in type(owner).__name__.lower()
    if name in {"bias", "beta"}:
        value.zero_()
    elif value.ndim < 2 or name == "gamma" or (is_norm and name in {"weight", "scale"}):
        value.fill_(1.0)
    elif isinstance(owner, torch.nn.Embedding):
        value.normal_(0.0, 1.0, generator=generator)
    else:
        fan_in = math.prod(value.shape[1:])
        value.normal_(0.0, 1.0 / math.sqrt(fan_in), generator=generator)
