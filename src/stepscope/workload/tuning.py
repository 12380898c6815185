"""What is done to a loaded pipeline before it runs: LoRA, attention, VAE memory, placement, compile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.model.errors import UsageError
from stepscope.model.nearest import nearest
from stepscope.workload.quiet import quiet_libraries
from stepscope.workload.request import CompileKind, LoadRequest, Offload, OffloadKind

if TYPE_CHECKING:
    import torch

ATTENTION_SPELLINGS = {
    "fa": "flash",
    "fa2": "flash",
    "fa3": "_flash_3",
    "torch_sdpa": "native",
    "sdpa": "native",
    "sage_attn": "sage",
    "cudnn": "_native_cudnn",
}
"""SGLang's names of attention backends to diffusers'."""

DENOISER_NAMES = ("transformer", "transformer_2", "unet", "unconditional_unet", "prior", "decoder")
"""Component names that diffusers gives to denoisers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done, as text."""

    offload: str
    compile: str
    attention_backend: str
    lora: str | None
    notes: tuple[str, ...]


def apply(pipeline: Any, request: LoadRequest, device: torch.device) -> Applied:
    """Do what ``request`` asks to ``pipeline``, in the one order that works.

    LoRA layers are added before anything is moved, attention is chosen before it is compiled, and compiling
    comes last so that offload hooks stay outside the compiled code.

    Raises:
        UsageError: the pipeline has no such thing, or it cannot be had on this machine.

    """
    lora = _add_lora(pipeline, request.lora_path, request.lora_scale) if request.lora_path else None
    attention = _set_attention(pipeline, request.attention_backend)
    notes = _save_vae_memory(pipeline, tiling=request.vae_tiling, slicing=request.vae_slicing)
    offload = _place(pipeline, request.offload, device)
    compiled = _compile(pipeline, request.compile)
    return Applied(offload=offload, compile=compiled, attention_backend=attention, lora=lora, notes=notes)


def denoisers(pipeline: Any) -> dict[str, Any]:
    """The pipeline's denoisers by component name."""
    present = ((name, pipeline.components.get(name)) for name in DENOISER_NAMES)
    return {name: module for name, module in present if module is not None}


def _add_lora(pipeline: Any, path: str, scale: float) -> str:
    if not hasattr(pipeline, "load_lora_weights"):
        raise UsageError(f"{_name(pipeline)} cannot take a LoRA.", remedy="Leave out --lora-path.")
    if path.startswith((".", "/", "~")) and not Path(path).expanduser().exists():
        raise UsageError(f"There is no LoRA at {path}.", remedy="Check --lora-path.")
    try:
        pipeline.load_lora_weights(
            str(Path(path).expanduser()) if path.startswith("~") else path, adapter_name="lora"
        )
        pipeline.set_adapters(["lora"], adapter_weights=[scale])
    except Exception as error:  # the hub's client raises its own kinds
        raise UsageError(
            f"The LoRA {path} cannot be applied to {_name(pipeline)}: {_first_line(error).rstrip('.')}.",
            remedy="Check --lora-path, the network, and that it was made for this model.",
        ) from error
    return f"{path} x {scale:g}"


def _set_attention(pipeline: Any, asked: str | None) -> str:
    if asked is None:
        return "default"
    backend = ATTENTION_SPELLINGS.get(asked.lower(), asked.lower())
    for module in denoisers(pipeline).values():
        if not hasattr(module, "set_attention_backend"):
            raise UsageError(
                f"{type(module).__name__} lets no attention backend be chosen.",
                remedy="Leave out --attention-backend.",
            )
        try:
            with quiet_libraries():  # diffusers calls the feature experimental on every call
                module.set_attention_backend(backend)
        except (ValueError, RuntimeError, ImportError, NotImplementedError) as error:
            raise UsageError(
                f"--attention-backend {asked} cannot be used here: {_reason(error, backend)}.",
                remedy=f"torch_sdpa works everywhere. {_backends_like(asked)}",
            ) from error
    return backend


def _reason(error: BaseException, backend: str) -> str:
    """The library's own words, which for an unknown name are a list of all: that is given whole, once."""
    if backend not in _backends():
        return "diffusers has no such backend"
    return " ".join(str(error).split()).rstrip(".")


def _backends_like(asked: str) -> str:
    close = nearest(asked, _backends(), most=3)
    return f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(sorted(_backends()))}."


def _backends() -> set[str]:
    """The spellings that diffusers and this command know."""
    from diffusers.models.attention_dispatch import AttentionBackendName

    return {str(backend.value) for backend in AttentionBackendName} | set(ATTENTION_SPELLINGS)


def _save_vae_memory(pipeline: Any, *, tiling: bool, slicing: bool) -> tuple[str, ...]:
    vae = pipeline.components.get("vae")
    notes = []
    for wanted, word in ((tiling, "tiling"), (slicing, "slicing")):
        if not wanted:
            continue
        if not hasattr(vae, f"enable_{word}"):
            raise UsageError(
                f"The VAE of {_name(pipeline)} ({type(vae).__name__}) knows no {word}.",
                remedy=f"Leave out --vae-{word}.",
            )
        getattr(vae, f"enable_{word}")()
        notes.append(f"VAE {word} on")
    return tuple(notes)


def _place(pipeline: Any, offload: Offload, device: torch.device) -> str:
    """Move the pipeline to the device, or install the offloading that will."""
    if offload.kind is OffloadKind.NONE:
        pipeline.to(device)
        return "none"
    if device.type == "cpu":
        raise UsageError(
            "CPU offload on a CPU: there is no accelerator to offload from.",
            remedy="Leave out the offload flags.",
        )
    if offload.kind is OffloadKind.MODEL:
        pipeline.enable_model_cpu_offload(device=device)
        return "model"
    if offload.kind is OffloadKind.SEQUENTIAL:
        pipeline.enable_sequential_cpu_offload(device=device)
        return "sequential"
    return _offload_groups(pipeline, offload, device)


def _offload_groups(pipeline: Any, offload: Offload, device: torch.device) -> str:
    """Offload each component in groups; what cannot be stays on the device and is named."""
    resident = []
    for name, module in _modules(pipeline):
        by_block = offload.kind is OffloadKind.BLOCK and _runs_in_blocks(name, module)
        if getattr(module, "_supports_group_offloading", True):
            _offload_module(module, offload, device, by_block=by_block)
        else:
            module.to(device)
            resident.append(name)
    groups = f" x {offload.blocks_per_group}" if offload.kind is OffloadKind.BLOCK else ""
    kept = f", {', '.join(resident)} on the device" if resident else ""
    return f"{offload.kind}{groups}, {'pinned, prefetched' if offload.pin else 'pageable'}{kept}"


def _offload_module(module: Any, offload: Offload, device: torch.device, *, by_block: bool) -> None:
    from diffusers.hooks import apply_group_offloading

    arguments = {
        "onload_device": device,
        "offload_type": "block_level" if by_block else "leaf_level",
        "num_blocks_per_group": offload.blocks_per_group if by_block else None,
        "use_stream": offload.pin,
        "non_blocking": offload.pin,
    }
    if hasattr(module, "enable_group_offload"):
        module.enable_group_offload(**arguments)
    else:
        apply_group_offloading(module, **arguments)


def _runs_in_blocks(name: str, module: Any) -> bool:
    """Whether block-level groups work: they load when blocks, and the whole, are called by ``forward``.

    Denoisers and text encoders are; a VAE is entered by ``decode``, where what lies outside its blocks would
    stay on the host. Without blocks of its own a component would be one group.
    """
    import torch

    if name not in DENOISER_NAMES and not name.startswith("text_encoder"):
        return False
    lists = (torch.nn.ModuleList, torch.nn.Sequential)
    return any(isinstance(child, lists) for child in module.children()) or bool(
        getattr(module, "_group_offload_block_modules", None)
    )


def _modules(pipeline: Any) -> list[tuple[str, Any]]:
    import torch

    return [(name, part) for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)]


def _compile(pipeline: Any, kind: CompileKind) -> str:
    if kind is CompileKind.NONE:
        return "none"
    for name, module in denoisers(pipeline).items():
        if kind is CompileKind.WHOLE:
            module.compile()
        elif getattr(module, "_repeated_blocks", None):
            module.compile_repeated_blocks()
        else:
            raise UsageError(
                f"{type(module).__name__} ({name}) names no repeated blocks to compile.",
                remedy="Compile it whole.",
            )
    return str(kind)


def _name(pipeline: Any) -> str:
    return type(pipeline).__name__


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
