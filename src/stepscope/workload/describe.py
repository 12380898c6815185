"""The workload in words, as it is recorded with every run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepscope.model import plain_values
from stepscope.model.run import Workload
from stepscope.workload.arguments import GenerationRequest, parameters
from stepscope.workload.dtypes import dtypes_of
from stepscope.workload.request import Loaded

GUIDANCE = ("guidance_scale", "guidance_scale_2", "true_cfg_scale", "guidance_rescale")
NAMED = {
    "prompt",
    "negative_prompt",
    "num_inference_steps",
    "height",
    "width",
    "num_frames",
    "generator",
    *GUIDANCE,
}


def describe(loaded: Loaded, request: GenerationRequest, arguments: Mapping[str, Any]) -> Workload:
    """What is about to run. Values not passed are the pipeline's defaults where those are plain."""
    takes = parameters(loaded.pipeline)

    def effective(name: str) -> Any:
        value = arguments.get(name, takes.get(name))
        return value if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None

    def whole(name: str) -> int | None:
        return plain_values.whole(effective(name))

    guidance = {name: plain_values.figure(effective(name)) for name in GUIDANCE}
    return Workload(
        model=loaded.model,
        weights="" if loaded.random_weights or not Path(loaded.model).expanduser().is_dir() else "folder",
        pipeline_class=type(loaded.pipeline).__name__,
        components=dict(loaded.components),
        load_format="dummy" if loaded.random_weights else "auto",
        prompt=request.prompt,
        negative_prompt=plain_values.text(effective("negative_prompt")),
        seed=request.seed,
        steps=whole("num_inference_steps"),
        guidance={name: value for name, value in guidance.items() if value is not None},
        height=whole("height"),
        width=whole("width"),
        frames=whole("num_frames"),
        outputs_per_prompt=request.outputs_per_prompt or 1,
        dtype=loaded.dtype,
        component_dtypes=dtypes_of(getattr(loaded.pipeline, "components", {})),
        offload=loaded.offload,
        compile=loaded.compile,
        attention_backend=loaded.attention_backend,
        arguments={name: short(value) for name, value in arguments.items() if name not in NAMED},
    )


def short(value: Any) -> str:
    """Plain values as they are, anything bigger by its type: a picture's pixels tell nothing here."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return str(value)[:200] if plain else f"<{type(value).__name__}>"
