"""What a run was of: model, precision, device, shapes, as far as its dump tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepscope.analyse.results import RunSummary
from stepscope.model.run import AS_LOADED
from stepscope.render import units
from stepscope.render.names import visible

_WEIGHTS = {"dummy": "random weights", AS_LOADED: "as the program loaded it"}
_GUIDANCE = "guidance."
_MOST_DIGITS = 12  # a dump may hold anything


def model_name(run: RunSummary) -> str | None:
    """The model, else the pipeline's class; None where the dump has neither."""
    asked = dict(run.workload)
    return asked.get("model") or asked.get("pipeline_class")


def model_sentence(run: RunSummary) -> str:
    """What was asked for; nothing where the dump does not even name a model or a pipeline."""
    asked, name = dict(run.workload), model_name(run)
    if name is None:
        return ""
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
    return " ".join(part for part in (asked.get("dtype"), f"on {device}" if device else None) if part)


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
