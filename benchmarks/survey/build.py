"""A tiny pipeline of a given class, ready to be called."""

from __future__ import annotations

import functools
import inspect
import operator
import random
from collections.abc import Callable
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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyPipeline:
    """A pipeline and how to call it; ``steps`` are those asked for, one number a denoising loop.

    ``ready`` makes the arguments of one call and returns the call, so that making them is in no measurement.
    """

    pipeline: Any
    ready: Callable[[], Callable[[], Any]]
    steps: tuple[int, ...]


def pipeline_classes() -> dict[str, Any]:
    """Every pipeline class that this diffusers exports, by its own name."""
    found = {}
    for name in dir(diffusers):
        value = getattr(diffusers, name, None)
        if inspect.isclass(value) and issubclass(value, diffusers.DiffusionPipeline):
            found[value.__name__] = value
    found.pop("DiffusionPipeline", None)
    return dict(sorted(found.items()))


def build_pipeline(name: str) -> TinyPipeline:
    """Build it. Raises NoConfigurationError where the tables say nothing of the class or of a component."""
    entry = pipeline_entries().get(name)
    if entry is None:
        raise NoConfigurationError("the tables have no entry for it")
    pipeline_class = pipeline_classes()[name]
    pipeline = pipeline_class(**build_components(entry.components))
    pipeline.set_progress_bar_config(disable=True)
    for method, arguments in entry.prepare.items():
        operator.attrgetter(method)(pipeline)(**make_arguments(arguments))
    return TinyPipeline(
        pipeline=pipeline,
        ready=functools.partial(_ready, pipeline, entry.call),
        steps=_steps_asked(pipeline_class, entry.call),
    )


def _ready(pipeline: Any, description: Any) -> Callable[[], Any]:
    """One call with its own generator; the global ones start anew, so that a run can be repeated."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return functools.partial(pipeline, **make_arguments(description))


def _steps_asked(pipeline_class: Any, call: Any) -> tuple[int, ...]:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(pipeline_class.__call__).parameters.items()
    }
    asked = [call.get(name, defaults.get(name)) for name in STEP_ARGUMENTS]
    timesteps = call.get("timesteps") or call.get("sigmas")
    if isinstance(timesteps, list) and timesteps:
        return (len(timesteps),)
    return tuple(steps for steps in asked if isinstance(steps, int))
