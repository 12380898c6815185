"""A tiny pipeline of a given class, ready to be called."""

from __future__ import annotations

import functools
import inspect
import operator
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import diffusers
import numpy as np
import torch

from survey.arguments import make_arguments
from survey.components import NoConfigurationError, build_components
from survey.tables import pipeline_entries

STEP_ARGUMENTS = (
    "prior_num_inference_steps",
    "num_inference_steps",
    "decoder_num_inference_steps",
    "super_res_num_inference_steps",
    "num_steps",
    "steps",
    "pyramid_num_inference_steps_list",
)
GIVEN_TIMES = ("timesteps", "sigmas")
"""A list of times, one a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyPipeline:
    """A pipeline and how to call it; ``steps`` are those asked for, one number a denoising loop.

    ``ready`` makes the arguments of one call and returns the call, so that making them is in no measurement.
    """

    pipeline: Any
    ready: Callable[[], Callable[[], Any]]
    steps: tuple[int, ...]
    strength: float | None = None


def pipeline_classes() -> dict[str, Any]:
    """Every pipeline class that this diffusers exports, modular ones too, by its own name."""
    bases = (diffusers.DiffusionPipeline, diffusers.ModularPipeline)
    found = {}
    for name in dir(diffusers):
        value = getattr(diffusers, name, None)
        if inspect.isclass(value) and issubclass(value, bases) and value not in bases:
            found[value.__name__] = value
    return dict(sorted(found.items()))


def is_modular(pipeline_class: Any) -> bool:
    """Whether this class is put together from blocks."""
    return issubclass(pipeline_class, diffusers.ModularPipeline)


def build_pipeline(name: str) -> TinyPipeline:
    """Build it. Raises NoConfigurationError where the tables say nothing of the class or of a component."""
    entry = pipeline_entries().get(name)
    if entry is None:
        raise NoConfigurationError("the tables have no entry for it")
    pipeline_class = pipeline_classes()[name]
    if not any("__call__" in vars(base) for base in pipeline_class.__mro__):
        raise NoConfigurationError(
            "it has no __call__: its methods make and call the classes named after them"
        )
    pipeline = _make(pipeline_class, build_components(entry.components))
    pipeline.set_progress_bar_config(disable=True)
    for method, arguments in entry.prepare.items():
        operator.attrgetter(method)(pipeline)(**make_arguments(arguments))
    defaults = {name: parameter.default for name, parameter in _parameters(pipeline_class).items()}
    strength = entry.call.get("strength", defaults.get("strength"))
    return TinyPipeline(
        pipeline=pipeline,
        ready=functools.partial(_ready, pipeline, entry.call),
        steps=_steps_asked(entry.call, defaults),
        strength=strength if isinstance(strength, float) else None,
    )


def _make(pipeline_class: Any, components: dict[str, Any]) -> Any:
    if not is_modular(pipeline_class):
        return pipeline_class(**components)
    pipeline = pipeline_class()  # of its default blocks
    wanted = set(pipeline.component_names)
    pipeline.update_components(**{role: part for role, part in components.items() if role in wanted})
    return pipeline


def _ready(pipeline: Any, description: Any) -> Callable[[], Any]:
    """One call with its own generator; the global ones start anew, so that a run can be repeated."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return functools.partial(pipeline, **make_arguments(description))


def _parameters(pipeline_class: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(pipeline_class.__call__).parameters


def _steps_asked(call: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[int, ...]:
    for name in GIVEN_TIMES:
        if isinstance(call.get(name), list):
            return (len(call[name]),)
    asked = [call.get(name, defaults.get(name)) for name in STEP_ARGUMENTS]
    return tuple(number for steps in asked for number in _numbers(steps))


def _numbers(steps: Any) -> tuple[int, ...]:
    return (steps,) if isinstance(steps, int) else tuple(steps) if isinstance(steps, list) else ()
