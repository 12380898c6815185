"""From what was asked to what a pipeline's ``__call__`` takes, by its signature."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from stepscope.model.errors import UsageError
from stepscope.workload.placement import choose_device
from stepscope.workload.presets.spec import GenerationDefaults

NO_NEGATIVE = " "
"""Qwen-Image's model card: 'a space if you do not have specific concept to remove'."""

FLAGS: Mapping[str, tuple[str, ...]] = {
    "steps": ("num_inference_steps",),
    "negative_prompt": ("negative_prompt",),
    "guidance_scale_2": ("guidance_scale_2",),
    "true_cfg_scale": ("true_cfg_scale",),
    "guidance_rescale": ("guidance_rescale",),
    "height": ("height",),
    "width": ("width",),
    "frames": ("num_frames", "video_length"),
    "outputs_per_prompt": (
        "num_images_per_prompt",
        "num_videos_per_prompt",
        "num_outputs_per_prompt",
        "num_waveforms_per_prompt",
    ),
}
"""Fields of a request that are passed on as they are, and what pipelines call them, first match."""

SEEDS = (-(2**63), 2**64 - 1)
"""What torch.Generator.manual_seed takes, first to last."""

MOST_OUTPUTS = 4096
"""Each has a generator, of 5 KB on the host."""

IMAGE_PARAMETERS = ("image", "images")

SPELLING = {
    "steps": "--num-inference-steps",
    "frames": "--num-frames",
    "outputs_per_prompt": "--num-outputs-per-prompt",
    "image_paths": "--image-path",
}
"""Flags whose name is not the field's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One generation as the user asked for it. None: the model's or pipeline's own default."""

    prompt: str
    negative_prompt: str | None = None
    image_paths: tuple[str, ...] = ()
    seed: int = 42  # SGLang's default
    generator_device: str | None = None  # None: the pipeline's
    steps: int | None = None
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None
    true_cfg_scale: float | None = None
    guidance_rescale: float | None = None
    height: int | None = None
    width: int | None = None
    frames: int | None = None
    fps: int | None = None
    outputs_per_prompt: int | None = None
    diffusers_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Call:
    """The arguments of one call while they are put together."""

    pipeline: Any
    takes: Mapping[str, Any]
    arguments: dict[str, Any] = field(default_factory=dict)

    def put(self, name: str, candidates: tuple[str, ...], value: Any) -> None:
        """Pass ``value`` under the first of ``candidates`` that the pipeline takes; UsageError if none."""
        parameter = next((candidate for candidate in candidates if candidate in self.takes), None)
        if parameter is None:
            raise UsageError(
                f"{type(self.pipeline).__name__} takes no {_flag(name)}.", remedy=self.accepted()
            )
        self.arguments[parameter] = value

    def accepted(self) -> str:
        return "It accepts: " + ", ".join(sorted(self.takes)) + "."


def call_arguments(
    pipeline: Any, request: GenerationRequest, defaults: GenerationDefaults | None = None
) -> dict[str, Any]:
    """Return the arguments to call ``pipeline`` with; call this anew for every run.

    Every call makes new generators from the seed, so repeated runs give the same bits; with several outputs
    the n-th one is seeded ``seed + n``, so that each can be made again alone. Images and videos are
    asked for as arrays (``output_type="np"``), because NaN can no longer be told from a PIL image.

    Guidance, by the signature: where a pipeline does real classifier-free guidance by default (its
    ``true_cfg_scale`` defaults to more than 1, as Qwen-Image's) and the denoiser has no guidance embedding,
    ``guidance_scale`` means ``true_cfg_scale``, as SGLang's users expect. Such a pipeline skips guidance
    when it gets no negative prompt; it gets ``" "`` then, as the model card says, so that guidance is real.
    Elsewhere ``guidance_scale`` is passed under its own name.

    Raises:
        UsageError: the pipeline has no parameter for something asked, or requires one that was not given.

    """
    _check_counts(request)
    defaults = defaults or GenerationDefaults()
    call = _Call(pipeline, parameters(pipeline))
    asked = _with_defaults(request, defaults)
    if request.prompt or "prompt" in call.takes:
        call.put("prompt", ("prompt",), request.prompt)
    for name, candidates in FLAGS.items():
        value = getattr(asked, name)
        if value is not None and not _says_nothing(name, value, call.takes, candidates):
            call.put(name, candidates, value)
    _put_guidance(call, asked)
    _put_images(call, request.image_paths)
    _put_formalities(call, request, asked.fps)
    _put_more(call, request.diffusers_kwargs)
    _require_all(call)
    return call.arguments


REQUIRED = inspect.Parameter.empty
"""Stands in ``parameters()`` for a parameter without a default."""


def parameters(pipeline: Any) -> dict[str, Any]:
    """What the pipeline's call takes: names and defaults (``REQUIRED`` where there is none)."""
    blocks = getattr(pipeline, "blocks", None)
    if blocks is not None and hasattr(blocks, "inputs"):  # a modular pipeline: its call takes only keywords
        # What its blocks mark as required may come from an earlier block: it alone knows what is missing.
        return {entry.name: entry.default for entry in blocks.inputs if entry.name}
    signature = inspect.signature(type(pipeline).__call__)
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name != "self" and parameter.kind not in kinds
    }


def generators(pipeline: Any, request: GenerationRequest) -> Any:
    """A new seeded generator, or one an output where there are several."""
    import torch

    asked = request.generator_device
    device = choose_device(asked, flag="--generator-device") if asked else execution_device(pipeline)
    count = request.outputs_per_prompt or 1
    made = [torch.Generator(device=device).manual_seed(request.seed + number) for number in range(count)]
    return made if count > 1 else made[0]


def execution_device(pipeline: Any) -> Any:
    """Where the pipeline computes, even if its weights rest elsewhere (offloading)."""
    device = getattr(pipeline, "_execution_device", None)
    return device if device is not None else pipeline.device


def _check_counts(request: GenerationRequest) -> None:
    for name in ("steps", "height", "width", "frames", "fps", "outputs_per_prompt"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise UsageError(f"{_flag(name)} {value}: it has to be 1 or more.")
    count = request.outputs_per_prompt or 1
    if count > MOST_OUTPUTS:
        raise UsageError(f"--num-outputs-per-prompt {count}: at most {MOST_OUTPUTS} in one run.")
    if not SEEDS[0] <= request.seed <= SEEDS[1] - count + 1:
        raise UsageError(f"--seed {request.seed} is out of range.", remedy="torch's seeds have 64 bits.")


def _flag(name: str) -> str:
    return SPELLING.get(name, "--" + name.replace("_", "-"))


def _with_defaults(request: GenerationRequest, defaults: GenerationDefaults) -> GenerationRequest:
    """The request with the model's defaults where it is silent."""
    silent = {
        entry.name: getattr(defaults, entry.name)
        for entry in fields(defaults)
        if getattr(request, entry.name) is None
    }
    if request.true_cfg_scale is not None:
        silent.pop("guidance_scale", None)
    return replace(request, **silent)


def _says_nothing(name: str, value: Any, takes: Mapping[str, Any], candidates: tuple[str, ...]) -> bool:
    """One frame or one output of a pipeline that makes only ones: true, and no argument needed."""
    return name in {"frames", "outputs_per_prompt"} and value == 1 and not set(candidates) & set(takes)


def _put_guidance(call: _Call, asked: GenerationRequest) -> None:
    by_default = _above_one(call.takes.get("true_cfg_scale"))
    name = "true_cfg_scale" if by_default and not _embeds_guidance(call.pipeline) else "guidance_scale"
    if asked.guidance_scale is not None and name not in call.arguments:
        call.put("guidance_scale", (name,), asked.guidance_scale)
    scale = call.arguments.get("true_cfg_scale", call.takes.get("true_cfg_scale"))
    if _above_one(scale) and "negative_prompt" in call.takes:
        call.arguments.setdefault("negative_prompt", NO_NEGATIVE)


def _above_one(scale: Any) -> bool:
    return isinstance(scale, (int, float)) and scale > 1


def _embeds_guidance(pipeline: Any) -> bool:
    """Whether the denoiser was distilled to take the guidance scale as an input."""
    configs = [getattr(part, "config", None) for part in pipeline.components.values()]
    return any(bool(config.get("guidance_embeds")) for config in configs if isinstance(config, Mapping))


def _put_images(call: _Call, paths: tuple[str, ...]) -> None:
    if paths:
        images = [_read_image(path) for path in paths]
        call.put("image_paths", IMAGE_PARAMETERS, images[0] if len(images) == 1 else images)


def _read_image(path: str) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(Path(path).expanduser()) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise UsageError(f"There is no image at {path}.", remedy="Check --image-path.") from None
    except (UnidentifiedImageError, OSError) as error:
        raise UsageError(
            f"{path} cannot be read as an image: {error}", remedy="Check --image-path."
        ) from error


def _put_formalities(call: _Call, request: GenerationRequest, fps: int | None) -> None:
    """Generators, arrays instead of PIL images, and the frame rate where it conditions the model."""
    if "generator" in call.takes:
        call.arguments["generator"] = generators(call.pipeline, request)
    if call.takes.get("output_type") == "pil":
        call.arguments["output_type"] = "np"
    rate = next((name for name in ("frame_rate", "fps") if name in call.takes), None)
    if rate is not None and fps is not None:  # elsewhere it concerns only the saved file
        call.arguments[rate] = fps


def _put_more(call: _Call, more: Mapping[str, Any]) -> None:
    """``--diffusers-kwargs`` wins over everything else."""
    unknown = [name for name in more if name not in call.takes]
    if unknown and not _takes_anything(call.pipeline):
        raise UsageError(
            f"{type(call.pipeline).__name__} takes no {', '.join(unknown)} (--diffusers-kwargs).",
            remedy=call.accepted(),
        )
    call.arguments.update(more)


def _takes_anything(pipeline: Any) -> bool:
    kinds = (entry.kind for entry in inspect.signature(type(pipeline).__call__).parameters.values())
    return inspect.Parameter.VAR_KEYWORD in kinds


def _require_all(call: _Call) -> None:
    needed = [name for name, default in call.takes.items() if default is REQUIRED]
    missing = [name for name in needed if name not in call.arguments]
    if missing:
        flags = ["--image-path" if name == "image" else f"--diffusers-kwargs {name}" for name in missing]
        raise UsageError(
            f"{type(call.pipeline).__name__} needs {', '.join(missing)}.", remedy=f"Give {', '.join(flags)}."
        )
