"""What each object of a pipeline is, told from its type and interfaces, never from the pipeline's name."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stepscope.model.recording import CallKind

TIME_PARAMETERS = frozenset({"timestep", "timesteps", "t", "sigma", "timestep_ratio", "r", "noise_level"})
"""A module whose forward takes one of these predicts noise: it is a denoiser, or conditions one."""

CONDITION_PARAMETERS = frozenset({"controlnet_cond", "control_cond", "controlnet_conditioning_scale"})
CONDITION_CLASS = re.compile(r"ControlNet|Adapter|MultiControlNet")
UPSAMPLER_CLASS = re.compile(r"Latent\w*(Upsampl|Upscal)er")
"""It enlarges latents between two denoising stages, or before a decoding."""
PICTURE_INPUTS = frozenset({"pixel_values", "pixel_values_videos", "image", "images", "x", "sample"})
DENOISER_ROLE = re.compile(r"^(unet|transformer|prior|decoder|dit|denoiser|model)(_\d+)?$")

PIPELINE_METHODS: tuple[tuple[re.Pattern[str], CallKind], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"check_(inputs?|image)$", CallKind.VALIDATION),
        (r"_?run_safety_checker$|numpy_to_pil$|score_waveforms$", CallKind.POSTPROCESSING),
        (r"_?post_?process(_\w+)?$|ensemble_\w+$", CallKind.POSTPROCESSING),
        (r"_?decode_(\w+_)?(latents|audio|prediction|sound)(_\w+)?$", CallKind.DECODING),
        (r"mel_spectrogram_to_waveform$|vae_decode_\w+$", CallKind.DECODING),
        (r"_?(get|generate)_timesteps?(_matrix|_schedule)?$", CallKind.TIMESTEPS),
        (r"_?encode_(vae_image|vae_video|conditions|first_frame|reference_audio)$", CallKind.VAE_ENCODING),
        (r"_?encode_(image_vae_latents|input_images)$", CallKind.VAE_ENCODING),
        (r"_?prepare_(\w+_)?(condition|conditioning)(_frames)?$", CallKind.VAE_ENCODING),
        (r"_?prepare_(video|depth_map|mask_latents|masks)$", CallKind.VAE_ENCODING),
        (r"prepare_(ip_adapter_)?image_embeds$|prepare_siglip_embeds$", CallKind.IMAGE_ENCODING),
        (r"_?encode_(image|video|clip_image|image_prompt|image_clip_latents)$", CallKind.IMAGE_ENCODING),
        (r"_get_image_embeds$|get_zero_embed$", CallKind.IMAGE_ENCODING),
        (r"_?(encode|enhance)_(\w+_)?(prompt|text|duration)", CallKind.TEXT_ENCODING),
        (r"_?get_\w*prompt_embeds$|_get_glm_embeds$|tokenize_prompt$", CallKind.TEXT_ENCODING),
        (r"_?prepare_(\w+_)?(latents?|image|images)(_(and|with)_mask)?$", CallKind.LATENTS),
        (r"_?pre_?process(_\w+)?$", CallKind.VAE_ENCODING),
        (r"_execution_device$|maybe_free_model_hooks$|progress_bar$|upcast_vae$", CallKind.HOUSEKEEPING),
        (r"_?(un)?pack_\w*(latents?|text_ids)\w*$|_?(un|de)?normalize_\w*latents?$", CallKind.HOUSEKEEPING),
        (r"_?(prepare|get)_\w*(ids|position\w*|embeddings?|embedding|kwargs)$", CallKind.HOUSEKEEPING),
        (
            r"_?(apply|set|prepare)_(\w+_)?(guidance|free_init|attn_processor|attention_mask)$",
            CallKind.HOUSEKEEPING,
        ),
        (r"convert_(x0|velocity)_to_\w+$|pred_(x0|epsilon)$|sag_masking$", CallKind.HOUSEKEEPING),
        (r"prepare_(class_labels|cross_attention)$|_?prepare_\w+_segment$", CallKind.HOUSEKEEPING),
    )
)
"""Methods that diffusers pipelines share by convention (counted over the 297 classes of 0.42.1)."""

SCHEDULER_HELPERS = ("step_correct", "add_noise", "scale_noise", "add_noise_to_input")
"""What else of a scheduler takes time. They end no step: a corrector's forward is in its predictor's step."""

MOST_PARTS = 32
"""A longer list is data, not a list of adapters or ControlNets."""

PROCESSOR_METHODS = {
    "preprocess": CallKind.VAE_ENCODING,
    "preprocess_video": CallKind.VAE_ENCODING,
    "preprocess_reference_video_hdr": CallKind.VAE_ENCODING,
    "postprocess": CallKind.POSTPROCESSING,
    "postprocess_video": CallKind.POSTPROCESSING,
    "postprocess_hdr_video": CallKind.POSTPROCESSING,
    "apply_overlay": CallKind.POSTPROCESSING,
}


@dataclass(frozen=True, slots=True)
class Known:
    """A method worth watching, of one object."""

    kind: CallKind
    component: str
    method: str  # as spans name it; ``__call__`` of a module is its ``forward``
    solver_order: int = 1
    stage: str | None = None  # CUSTOM: named by the user


Methods = dict[str, Known]


def methods_of_pipeline(pipeline: Any, name: str) -> Methods:
    """The watched methods of a pipeline's own class, by attribute name."""
    found: Methods = {}
    for attribute in dir(type(pipeline)):
        kind = _kind_by_name(attribute)
        if kind is None:
            continue
        member = inspect.getattr_static(type(pipeline), attribute)
        if inspect.isfunction(member) or isinstance(member, property):
            found[attribute] = Known(kind, name, attribute)
    return found


@functools.lru_cache(maxsize=4096)
def _kind_by_name(attribute: str) -> CallKind | None:
    """Remembered: a pipeline's class has hundreds of names, and is looked through at each of its calls."""
    return next((kind for pattern, kind in PIPELINE_METHODS if pattern.match(attribute)), None)


def methods_of(component: Any, role: str) -> Methods:
    """The watched methods of one component; empty for what is neither of a known type nor interface."""
    if _is_module(component):
        return _methods_of_module(component, role)
    if is_scheduler(component):
        return _methods_of_scheduler(component, role)
    if callable(getattr(component, "postprocess", None)) and callable(getattr(component, "preprocess", None)):
        return {
            method: Known(kind, role, method)
            for method, kind in PROCESSOR_METHODS.items()
            if callable(getattr(component, method, None))
        }
    return {}


def is_scheduler(component: Any) -> bool:
    """Whether this steps through timesteps: by interface, or by diffusers' base class."""
    if not (callable(getattr(component, "step", None)) or callable(getattr(component, "step_pred", None))):
        return False
    bases = {base.__name__ for base in type(component).__mro__}
    return hasattr(component, "set_timesteps") or "SchedulerMixin" in bases


def _is_module(component: Any) -> bool:
    import torch

    return isinstance(component, torch.nn.Module)


def _methods_of_scheduler(scheduler: Any, role: str) -> Methods:
    order = getattr(scheduler, "order", 1)
    order = order if isinstance(order, int) else 1
    known = {
        "step": Known(CallKind.SCHEDULER_STEP, role, "step", order),
        "step_pred": Known(CallKind.SCHEDULER_STEP, role, "step_pred", order),  # score-based SDE's predictor
        "set_timesteps": Known(CallKind.TIMESTEPS, role, "set_timesteps"),
        **{method: Known(CallKind.HOUSEKEEPING, role, method) for method in SCHEDULER_HELPERS},
    }
    return {method: what for method, what in known.items() if callable(getattr(scheduler, method, None))}


def _methods_of_module(module: Any, role: str) -> Methods:
    plain = getattr(module, "_orig_mod", module)  # torch.compile(module) wraps; its type is the wrapper's
    if _is_autoencoder(plain):
        known = {
            "decode": Known(CallKind.DECODING, role, "decode"),
            "encode": Known(CallKind.VAE_ENCODING, role, "encode"),
        }
        return {method: what for method, what in known.items() if callable(getattr(plain, method, None))}
    kind = module_kind(plain, role)
    methods = {"__call__": Known(kind, role, "forward")}
    if _is_transformers_model(plain):
        for method in ("generate", "get_text_features", "get_image_features"):
            if callable(getattr(plain, method, None)):
                methods[method] = Known(kind, role, method)
    return methods


def module_kind(module: Any, role: str) -> CallKind:
    """What calling this module does."""
    parameters = _forward_parameters(module)
    if _is_transformers_model(module):
        return _transformers_kind(module, role, parameters)
    timed = bool(parameters & TIME_PARAMETERS)
    if timed and DENOISER_ROLE.match(role):  # a UNet with its ControlNet built in (ControlNet-XS) too
        return CallKind.FORWARD
    if CONDITION_CLASS.search(type(module).__name__) or parameters & CONDITION_PARAMETERS:
        # Without a time input it runs once, before the loop (T2I-Adapter): it encodes an image.
        return CallKind.CONDITIONER if timed else CallKind.IMAGE_ENCODING
    if timed or DENOISER_ROLE.match(role):
        return CallKind.FORWARD
    if "vocoder" in role:
        return CallKind.DECODING
    if UPSAMPLER_CLASS.search(type(module).__name__):
        return CallKind.LATENTS
    if "safety" in role or "watermark" in role:
        return CallKind.POSTPROCESSING
    return CallKind.IMAGE_ENCODING if parameters & PICTURE_INPUTS else CallKind.TEXT_ENCODING


def _transformers_kind(module: Any, role: str, parameters: frozenset[str]) -> CallKind:
    main = getattr(module, "main_input_name", "")
    if "safety" in role or main == "clip_input":
        return CallKind.POSTPROCESSING
    if main == "spectrogram" or "vocoder" in role:
        return CallKind.DECODING
    if DENOISER_ROLE.match(role):
        return CallKind.FORWARD
    if main == "pixel_values" and "input_ids" not in parameters:
        return CallKind.IMAGE_ENCODING
    return CallKind.TEXT_ENCODING


def _is_transformers_model(module: Any) -> bool:
    return any(base.__name__ == "PreTrainedModel" for base in type(module).__mro__)


def _is_autoencoder(module: Any) -> bool:
    """A module that decodes and takes no time; language models decode too, and are none."""
    decodes = callable(getattr(module, "decode", None)) and not _is_transformers_model(module)
    return decodes and not _forward_parameters(module) & TIME_PARAMETERS


def _forward_parameters(module: Any) -> frozenset[str]:
    try:
        # The class's: accelerate and step caches put other functions at the instance.
        return frozenset(inspect.signature(type(module).forward).parameters)
    except (TypeError, ValueError, AttributeError):
        return frozenset()


def components_of(pipeline: Any) -> Iterator[tuple[str, Any]]:
    """``(name, object)`` of everything a pipeline holds, nested pipelines last and under their own name.

    Attributes are read, not ``pipeline.components``: a scheduler may be a plain attribute, and the property
    raises for some pipelines.
    """
    nested = []
    for name, value in attributes_of(pipeline).items():
        if is_pipeline(value):
            nested.append((name, value))
        elif issubclass(type(value), (list, tuple)) and len(value) <= MOST_PARTS:
            yield from ((f"{name}.{index}", item) for index, item in enumerate(value))
        else:
            yield name, value
    for name, value in nested:
        yield name, value
        yield from ((f"{name}.{inner}", item) for inner, item in components_of(value))


def attributes_of(thing: Any) -> dict[str, Any]:
    """An object's own attributes, those in slots too; its own ideas of attribute access are not asked."""
    found: dict[str, Any] = {}
    for base in type(thing).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = vars(base).get(name)
            if inspect.ismemberdescriptor(member):
                with suppress(AttributeError):  # not set
                    found[name] = member.__get__(thing)
    with suppress(AttributeError):
        found |= object.__getattribute__(thing, "__dict__")
    return found


def is_pipeline(value: Any) -> bool:
    """Whether this is a diffusers pipeline, classic or modular."""
    names = {base.__name__ for base in type(value).__mro__}
    return bool(names & {"DiffusionPipeline", "ModularPipeline"})
