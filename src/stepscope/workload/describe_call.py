"""The workload of a call that somebody else's program makes, read from the pipeline and the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from stepscope.model import plain_values
from stepscope.model.run import AS_LOADED, Workload
from stepscope.workload.arguments import FLAGS, parameters
from stepscope.workload.describe import GUIDANCE, NAMED, short
from stepscope.workload.dtypes import denoisers_dtype, dtypes_of


def describe_call(pipeline: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Workload:
    """What is about to run, as far as signature, arguments and pipeline tell; never raises for their sake."""
    takes = _takes(pipeline)
    given = dict(zip(takes, args, strict=False)) | dict(kwargs)

    def effective(name: str) -> Any:
        value = given.get(name, takes.get(name))
        return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None

    def whole(*names: str) -> int | None:
        values = [effective(name) for name in names]
        return next((number for value in values if (number := plain_values.whole(value)) is not None), None)

    prompts = given.get("prompt")
    several = isinstance(prompts, (list, tuple))
    further = {name: short(value) for name, value in given.items() if name not in NAMED}
    if several:
        further["prompts"] = str(len(prompts or ()))
    guidance = {name: plain_values.figure(effective(name)) for name in GUIDANCE}
    parts = _parts(pipeline)
    dtypes = dtypes_of(parts)
    return Workload(
        model=_model(pipeline),
        pipeline_class=type(pipeline).__name__,
        components={name: type(part).__name__ for name, part in parts.items()},
        load_format=AS_LOADED,
        prompt=str(next(iter(prompts or ()), "") if several else prompts or ""),
        negative_prompt=plain_values.text(effective("negative_prompt")),
        seed=_seed(given.get("generator")),
        steps=_steps(given, whole),
        guidance={name: value for name, value in guidance.items() if value is not None},
        height=whole("height"),
        width=whole("width"),
        frames=whole(*FLAGS["frames"]),
        outputs_per_prompt=whole(*FLAGS["outputs_per_prompt"]) or 1,
        dtype=denoisers_dtype(dtypes) or str(_attribute(pipeline, "dtype") or "").removeprefix("torch."),
        component_dtypes=dtypes,
        arguments=further,
    )


def _takes(pipeline: Any) -> dict[str, Any]:
    try:
        return parameters(pipeline)
    except (TypeError, ValueError, AttributeError):  # a class of its own kind: its arguments stay unnamed
        return {}


def _steps(given: Mapping[str, Any], whole: Any) -> int | None:
    """Steps asked for: a list of timesteps or sigmas says it before a number does."""
    for name in ("timesteps", "sigmas"):
        listed = given.get(name)
        if isinstance(listed, (list, tuple)) and listed:
            return len(listed)
    steps: int | None = whole(*FLAGS["steps"])
    return steps


def _seed(generator: Any) -> int | None:
    """The first generator's seed; None where the global random state was used."""
    first = next(iter(generator), None) if isinstance(generator, (list, tuple)) else generator
    seed = getattr(first, "initial_seed", None)
    return int(seed()) if callable(seed) else None


def _model(pipeline: Any) -> str:
    named = _attribute(_attribute(pipeline, "config"), "_name_or_path")
    return str(named) if named else type(pipeline).__name__


def _parts(pipeline: Any) -> dict[str, Any]:
    """Components by name, told from attributes: ``pipeline.components`` raises for some pipelines."""
    names = inspect.getattr_static(type(pipeline), "__init__", None)
    try:
        expected = inspect.signature(names).parameters if names is not None else {}
    except (TypeError, ValueError):
        expected = {}
    found = {name: vars(pipeline).get(name) for name in expected if name in vars(pipeline)}
    return {name: part for name, part in found.items() if part is not None}


def _attribute(owner: Any, name: str) -> Any:
    """An attribute that may be a property with a fault of its own."""
    try:
        return getattr(owner, name, None)
    except Exception:  # the user's own property: what it says is not worth failing for
        return None
