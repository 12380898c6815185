"""What is found at work in a pipeline's modules, however they hold each other."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import FluxTransformer2DModel
from diffusers.models import attention_dispatch  # noqa: F401  what the dispatcher has shows only where it is loaded

from stepscope.capture.engaged import attention_backend, compiled_modules


class Block(torch.nn.Module):
    """A block with a processor, as attention has it."""

    def __init__(self, processor: Any = None) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.absent = None
        self.register_module("optional", None)
        self.processor = processor


class LegacyAttnProcessor:
    """A processor of a class that knows no dispatcher."""


class ModuleAttnProcessor(torch.nn.Module):
    """An IP-adapter's: with weights of its own."""


def test_compiled_modules_are_counted_without_those_in_them() -> None:
    """In place and wrapped; inside one nothing counts, and what is not there is passed over."""
    in_place, wrapped = Block(), torch.compile(Block(), backend="eager")
    in_place.compile(backend="eager")
    in_place.inner.compile(backend="eager")
    assert compiled_modules([torch.nn.Sequential(in_place, wrapped, Block())]) == 2


def test_a_scripted_module_and_one_that_holds_itself_are_looked_through() -> None:
    """TorchScript keeps its modules elsewhere, and modules can refer to each other in a ring."""
    ring = torch.nn.Sequential(torch.nn.Sequential())
    ring[0].append(ring)
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    assert compiled_modules([ring, scripted]) == 0
    assert attention_backend([ring, scripted]) is None


def test_the_attention_in_use_is_named_by_dispatcher_or_class() -> None:
    """Diffusers' own backend, and the class of processors that it knows nothing of, modules or not."""
    assert attention_backend([Block(LegacyAttnProcessor())]) == "LegacyAttnProcessor"
    assert attention_backend([Block(ModuleAttnProcessor())]) == "ModuleAttnProcessor"
    flux = FluxTransformer2DModel(
        num_layers=1,
        num_single_layers=0,
        attention_head_dim=16,
        num_attention_heads=1,
        axes_dims_rope=(4, 4, 8),
    )
    assert attention_backend([flux]) == "native"
