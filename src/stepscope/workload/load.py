"""Load a pipeline: resolve the model, build or read it, place it, tune it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from stepscope.model.errors import RunFailedError, UsageError
from stepscope.model.nearest import nearest
from stepscope.workload import dummy, hub, placement, tuning
from stepscope.workload.image_input import taking_images
from stepscope.workload.presets import DEFAULT_MODEL, PRESETS, find_preset
from stepscope.workload.presets.spec import GenerationDefaults, Preset
from stepscope.workload.quiet import quiet_libraries
from stepscope.workload.request import (
    Loaded,
    LoadFormat,
    LoadRequest,
    OffloadKind,
    Progress,
    no_progress,
)

if TYPE_CHECKING:
    import torch

TINY_PREFIX = "tiny/"


def load(request: LoadRequest, progress: Progress = no_progress) -> Loaded:
    """Return the pipeline that ``request`` describes, ready to be called.

    Raises:
        UsageError: an unknown model, device, dtype or backend, no access, no network, or an option that this
            model cannot take.
        RunFailedError: torch or diffusers is missing, or the model does not fit into memory.

    """
    _require_libraries()
    model = request.model or DEFAULT_MODEL
    device = placement.choose_device(request.device)
    dtype = placement.choose_dtype(request.dtype, device)
    preset = find_preset(model)
    random_weights = _random_weights(request)
    if request.denoiser_layers is not None and not random_weights:
        raise UsageError("Layers can be left out of random weights only.", remedy="Add --load-format dummy.")
    with _memory_guard(model, device), hub.told_in_one_line(model):
        if random_weights:
            pipeline = _built(request, preset or _no_preset(model), device, dtype, progress)
        else:
            pipeline = _read(request, model, preset, dtype, progress)
        if request.image_input:
            pipeline = taking_images(pipeline)
        if hasattr(pipeline, "set_progress_bar_config"):
            pipeline.set_progress_bar_config(disable=not sys.stderr.isatty())
        done = tuning.apply(pipeline, request, device)
    notes = _notes(request) if random_weights else ()
    return Loaded(
        pipeline=pipeline,
        model=preset.id if preset else model,
        random_weights=random_weights,
        components=component_classes(pipeline),
        device=str(device),
        dtype=placement.dtype_name(dtype),
        offload=done.offload,
        compile=done.compile,
        attention_backend=done.attention_backend,
        lora=done.lora,
        defaults=preset.defaults if preset else GenerationDefaults(),
        notes=notes + done.notes,
    )


def refuse_unknown(request: LoadRequest) -> None:
    """Look at the model's name, which needs no library; what the hub or a folder has is seen when loading.

    Raises:
        UsageError: random weights are asked for and there is no such preset.

    """
    model = request.model or DEFAULT_MODEL
    if _random_weights(request) and find_preset(model) is None:
        _no_preset(model)


def _random_weights(request: LoadRequest) -> bool:
    model = request.model or DEFAULT_MODEL
    return request.load_format is LoadFormat.DUMMY or model.lower().startswith(TINY_PREFIX)


def component_classes(pipeline: Any) -> dict[str, str]:
    """Class names of the pipeline's components by component name; absent optional ones left out."""
    return {name: type(part).__name__ for name, part in pipeline.components.items() if part is not None}


def _no_preset(model: str) -> NoReturn:
    close = nearest(model, PRESETS, most=3)
    raise UsageError(
        f"There is no preset {model!r} to build with random weights.",
        remedy=f"Did you mean {' or '.join(close)}?"
        if close
        else "Presets: " + ", ".join(sorted(PRESETS)) + ".",
    )


def _built(
    request: LoadRequest,
    preset: Preset,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress,
) -> Any:
    """The preset with random weights; offloaded models are drawn on the device and kept on the host."""
    import torch

    if request.denoiser_layers is not None:
        if request.denoiser_layers < 1:
            raise UsageError("A denoiser needs one layer or more.")
        preset = dummy.with_depth(preset, request.denoiser_layers)
    names = list(preset.components)
    keep_on = device if request.offload.kind is OffloadKind.NONE else torch.device("cpu")
    with quiet_libraries():
        pipeline = dummy.build_pipeline(
            preset,
            draw_on=device,
            keep_on=keep_on,
            dtypes=placement.component_dtypes(names, dtype, request.precision, preset.precision),
            seed=request.weight_seed,
            started=lambda name: progress(name, names.index(name), len(names)),
        )
    progress("done", len(names), len(names))
    return pipeline


def _read(
    request: LoadRequest, model: str, preset: Preset | None, dtype: torch.dtype, progress: Progress
) -> Any:
    """The published weights. Which components there are is known only for presets before loading."""
    progress(model, 0, 1)
    groups = (
        "transformer",
        "transformer_2",
        "unet",
        "vae",
        "text_encoder",
        "text_encoder_2",
        "text_encoder_3",
    )
    published = preset.precision if preset else {}
    dtypes = placement.component_dtypes(groups, dtype, request.precision, published)
    differing = {name: value for name, value in dtypes.items() if value != dtype}
    with quiet_libraries():
        pipeline = hub.load_pipeline(request, model, {**differing, "default": dtype})
    progress("done", 1, 1)
    return pipeline


@contextmanager
def _memory_guard(model: str, device: torch.device) -> Iterator[None]:
    """Out of memory while loading, told with what helps."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RunFailedError(
            f"{model} does not fit into the memory of {device}.",
            remedy="Try CPU offload, a lower precision, or --device cpu.",
        ) from error


def _notes(request: LoadRequest) -> tuple[str, ...]:
    notes = [f"random weights (seed {request.weight_seed}): timing is real, the picture is not"]
    if request.denoiser_layers is not None:
        notes.append(f"denoiser cut to {request.denoiser_layers} layers")
    return tuple(notes)


def _require_libraries() -> None:
    try:
        import diffusers  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise RunFailedError(
            f"Running a pipeline needs {error.name}, which is not installed.",
            remedy='Install it with: pip install "stepscope[run]".',
        ) from error
