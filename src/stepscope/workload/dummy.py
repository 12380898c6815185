"""Build a whole pipeline from a preset, with seeded random weights and no download."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.workload.presets.spec import ComponentSpec, Preset
from stepscope.workload.weights import empty_parameters, fill

if TYPE_CHECKING:
    import torch


def build_pipeline(
    preset: Preset,
    *,
    draw_on: torch.device,
    keep_on: torch.device,
    dtypes: Mapping[str, torch.dtype],
    seed: int,
    started: Callable[[str], None] = lambda _: None,
) -> Any:
    """Return the pipeline with every component built on ``keep_on``, its weights drawn on ``draw_on``.

    The same seed gives the same weights on the same kind of device. ``dtypes`` names the dtype of each
    component; ``started`` is told each component's name as its turn comes.
    """
    import diffusers

    from stepscope.workload.tokenizer import CountingTokenizer

    parts: dict[str, Any] = {}
    for name, spec in preset.components.items():
        started(name)
        module = empty_component(spec, dtypes[name])
        fill(
            module,
            generator=_generator(draw_on, seed, name),
            device=keep_on,
            dtype_of=_dtype_rule(module, dtypes[name]),
        )
        parts[name] = module.eval()
    for name, rules in preset.tokenizers.items():
        parts[name] = CountingTokenizer(rules)
    scheduler_class = getattr(diffusers, preset.scheduler.class_name)
    parts["scheduler"] = scheduler_class.from_config(dict(preset.scheduler.config))
    return getattr(diffusers, preset.pipeline_class)(**parts, **preset.options)


def empty_component(spec: ComponentSpec, dtype: torch.dtype) -> torch.nn.Module:
    """The module as its class builds it, parameters on the meta device, buffers real, on the CPU."""
    with empty_parameters(dtype):
        module: torch.nn.Module
        if spec.library == "transformers":
            import transformers

            config = getattr(transformers, spec.config_class)(**spec.config)
            module = getattr(transformers, spec.class_name)(config)
        else:
            import diffusers

            module = getattr(diffusers, spec.class_name)(**spec.config)
    if hasattr(module, "tie_weights"):
        module.tie_weights()  # making parameters empty one by one has untied them
    return module


def with_depth(preset: Preset, blocks: int) -> Preset:
    """The preset with at most ``blocks`` repeated blocks of each kind in its denoisers."""
    return replace(
        preset, components={name: _shallower(spec, blocks) for name, spec in preset.components.items()}
    )


def _shallower(spec: ComponentSpec, blocks: int) -> ComponentSpec:
    cut = {key: _at_most(spec.config[key], blocks) for key in spec.depth_keys}
    return replace(spec, config={**spec.config, **cut})


def _at_most(depth: Any, blocks: int) -> Any:
    """A depth, or a list of depths as U-Nets have, cut to ``blocks``."""
    if isinstance(depth, int):
        return min(depth, blocks)
    return [_at_most(part, blocks) for part in depth]


def _generator(device: torch.device, seed: int, component: str) -> torch.Generator:
    """Its own generator a component, so that one component's weights do not depend on the others'.

    The CPU's generator uses only the low 32 bits of a seed, hence one hash of both.
    """
    import torch

    return torch.Generator(device=device).manual_seed(zlib.crc32(f"{seed}:{component}".encode()))


def _dtype_rule(module: torch.nn.Module, dtype: torch.dtype) -> Callable[[str], torch.dtype]:
    """Which parameters stay in float32, as the model class asks and its library's loader does.

    diffusers keeps ``_keep_in_fp32_modules`` in float32 for any lower dtype; transformers for float16 only,
    and ``_keep_in_fp32_modules_strict`` always.
    """
    import torch

    names = set(getattr(module, "_keep_in_fp32_modules_strict", None) or ())
    if type(module).__module__.startswith("diffusers") or dtype == torch.float16:
        names |= set(getattr(module, "_keep_in_fp32_modules", None) or ())

    def dtype_of(parameter: str) -> torch.dtype:
        return torch.float32 if names.intersection(parameter.split(".")) else dtype

    return dtype_of
