"""What a run was of: model, precision, device, shapes, as far as its dump tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepscope.analyse.results import RunSummary
from stepscope.model.run import AS_LOADED
from stepscope.render import units
from stepscope.render.names import visible

_WEIGHTS = {"dummy": "random weights", AS_LOADED: "as the program loaded it"}
_GUIDANCE = "guidance."
_COMPONENT = "component_dtypes."
_MOST_NAMES = 4
_MOST_DIGITS = 12  # a dump may hold anything


def model_name(run: RunSummary) -> str | None:
    """The model, else the pipeline's class; None where the dump has neither."""
    asked = dict(run.workload)
    return asked.get("model") or asked.get("pipeline_class")


def model_sentence(run: RunSummary, *, named: bool = True) -> str:
    """What was asked for; nothing where the dump does not even name a model or a pipeline.

    ``named``: with the name of the marked block that the pipeline was called in.
    """
    asked, name = dict(run.workload), model_name(run)
    if name is None:
        return ""
    if asked.get("block") and asked.get("pipeline_class"):
        name = (f"{asked['block']}: " if named else "") + asked["pipeline_class"]
    parts = [
        visible(name) + _weights(asked),
        _where(asked, dict(run.environment)),
        *_shape(asked),
        *(
            f"{key.removeprefix(_GUIDANCE)} {value}"
            for key, value in run.workload
            if key.startswith(_GUIDANCE)
        ),
        f"seed {asked['seed']}" if "seed" in asked else "",
    ]
    return ", ".join(visible(part) for part in parts if part)


def _weights(asked: Mapping[str, str]) -> str:
    """Where the weights came from; a dump that is not ours does not tell."""
    if "load_format" not in asked:
        return ""
    published = "weights from folder" if asked.get("weights") == "folder" else "published weights"
    return f" ({_WEIGHTS.get(asked['load_format'], published)})"


def _where(asked: Mapping[str, str], environment: Mapping[str, str]) -> str:
    device = environment.get("device_name") or environment.get("device_kind")
    return " ".join(part for part in (_dtypes(asked), f"on {device}" if device else None) if part)


def _dtypes(asked: Mapping[str, str]) -> str:
    """The dtype, and in brackets that of the components which have another: ``bfloat16 (vae float32)``."""
    main = asked.get("dtype", "")
    others: dict[str, list[str]] = {}
    for key, dtype in asked.items():
        if key.startswith(_COMPONENT) and dtype != main:
            others.setdefault(dtype, []).append(key.removeprefix(_COMPONENT))
    said = "; ".join(f"{_names(names)} {dtype}" for dtype, names in others.items())
    return f"{main} ({said})" if said and main else said or main


def _names(names: list[str]) -> str:
    shown = names[:_MOST_NAMES]
    left = len(names) - len(shown)
    return ", ".join(shown) + (f" and {units.count(left)} more" if left else "")


def _shape(asked: Mapping[str, str]) -> Iterator[str]:
    width, height, steps = (_number(asked, key) for key in ("width", "height", "steps"))
    frames, outputs = _number(asked, "frames"), _number(asked, "outputs_per_prompt")
    if width and height:
        yield f"{width}x{height}"
    if frames > 1:
        yield units.counted(frames, "frame")
    if outputs > 1:
        yield units.counted(outputs, "output")
    if steps:
        yield f"{units.counted(steps, 'step')} asked for"


def _number(asked: Mapping[str, str], key: str) -> int:
    """A whole number; 0 where there is none."""
    text = asked.get(key, "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
