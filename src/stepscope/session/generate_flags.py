"""From flags, as a command line, a configuration file or a Python call gives them, to ``GenerateOptions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from stepscope.model.errors import UsageError
from stepscope.model.file_names import possible_path
from stepscope.model.vocabulary import TraceDetail
from stepscope.record.prompt_file import read_prompts
from stepscope.session.flag_checks import checked
from stepscope.session.generate_options import (
    PROFILED_STEPS,
    GenerateOptions,
    OutputOptions,
    ProfileOptions,
    WarmupOptions,
)
from stepscope.session.one_process import refuse_what_is_not_here
from stepscope.workload.arguments import GenerationRequest
from stepscope.workload.request import (
    CompileKind,
    LoadFormat,
    LoadRequest,
    Offload,
    OffloadKind,
    Precision,
)

COMPONENT_OFFLOADS = (
    "dit_cpu_offload",
    "text_encoder_cpu_offload",
    "image_encoder_cpu_offload",
    "vae_cpu_offload",
)
"""SGLang's offload flags by component; diffusers moves all components or none."""


PROFILE_FLAGS = ("num_profiled_timesteps", "profile_all_stages", "trace_detail", "max_trace_mb")
"""Flags that mean nothing without --profile."""

MOST_TRACE_MB = 1e9


class GenerateFlags(TypedDict, total=False):
    """Every flag of ``stepscope generate``, with underscores. What is not given takes its default there."""

    # what to generate
    prompt: str | Sequence[str]
    prompt_path: str | Path
    negative_prompt: str
    image_path: str | Sequence[str]
    seed: int
    generator_device: str
    num_inference_steps: int
    guidance_scale: float
    guidance_scale_2: float
    true_cfg_scale: float
    guidance_rescale: float
    height: int
    width: int
    num_frames: int
    fps: int
    num_outputs_per_prompt: int
    diffusers_kwargs: Mapping[str, Any]
    # what to measure
    profile: bool
    num_profiled_timesteps: int
    profile_all_stages: bool
    trace_detail: str
    max_trace_mb: float
    perf_dump_path: str | Path
    warmup: bool
    warmup_steps: int
    enable_nvtx: bool
    enable_layerwise_nvtx_marker: bool
    # where the results go
    output_path: str | Path
    output_file_name: str
    output_file_path: str | Path
    save_output: bool
    profile_dir: str | Path
    run_dir: str | Path
    # which model and how it is loaded
    model_path: str
    load_format: str
    revision: str
    variant: str
    trust_remote_code: bool
    backend: str
    device: str
    dtype: str
    dit_precision: str
    vae_precision: str
    text_encoder_precision: str
    lora_path: str
    lora_scale: float
    denoiser_layers: int
    # how it runs
    attention_backend: str
    enable_torch_compile: bool
    compile: str
    vae_tiling: bool
    vae_slicing: bool
    offload: str
    dit_cpu_offload: bool
    text_encoder_cpu_offload: bool
    image_encoder_cpu_offload: bool
    vae_cpu_offload: bool
    dit_layerwise_offload: bool
    pin_cpu_memory: bool
    # as in scripts for SGLang: only what runs anyway (session.one_process)
    num_gpus: int
    tp_size: int
    sp_degree: int
    ulysses_degree: int
    ring_degree: int
    dp_size: int
    dp_degree: int
    enable_cfg_parallel: bool
    use_fsdp_inference: bool
    enable_teacache: bool


def options_of(flags: GenerateFlags, *, show_progress: bool = False) -> GenerateOptions:
    """What the flags ask for.

    Raises:
        UsageError: an unknown flag, flags that exclude each other, a value of another type or
            out of range, a prompt file that cannot be read.

    """
    flags = cast("GenerateFlags", checked(flags, GenerateFlags))
    refuse_what_is_not_here(flags)
    _check_texts(flags)
    profile = _profile(flags)
    return GenerateOptions(
        load=_load(flags),
        requests=tuple(_request(flags, prompt) for prompt in _prompts(flags)),
        profile=profile,
        perf_dump_path=_path(flags.get("perf_dump_path")),
        run_directory=_path(flags.get("run_dir")),
        warmup=WarmupOptions(enabled=flags.get("warmup"), steps=flags.get("warmup_steps", 2)),
        output=_output(flags),
        show_progress=show_progress,
        nvtx=flags.get("enable_nvtx", False),
        layerwise_nvtx=flags.get("enable_layerwise_nvtx_marker", False),
    )


def _prompts(flags: GenerateFlags) -> list[str]:
    given = flags.get("prompt")
    prompts = [given] if isinstance(given, str) else list(given or [])
    path = _path(flags.get("prompt_path"))
    if path is not None:
        prompts += read_prompts(path)
    if not prompts:
        raise UsageError("there is no prompt.", remedy='Give one with --prompt "...".')
    return prompts


def _request(flags: GenerateFlags, prompt: str) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt,
        negative_prompt=flags.get("negative_prompt"),
        image_paths=_images(flags),
        seed=flags.get("seed", 42),
        generator_device=flags.get("generator_device"),
        steps=flags.get("num_inference_steps"),
        guidance_scale=flags.get("guidance_scale"),
        guidance_scale_2=flags.get("guidance_scale_2"),
        true_cfg_scale=flags.get("true_cfg_scale"),
        guidance_rescale=flags.get("guidance_rescale"),
        height=flags.get("height"),
        width=flags.get("width"),
        frames=flags.get("num_frames"),
        fps=flags.get("fps"),
        outputs_per_prompt=flags.get("num_outputs_per_prompt"),
        diffusers_kwargs=flags.get("diffusers_kwargs", {}),
    )


def _images(flags: GenerateFlags) -> tuple[str, ...]:
    given = flags.get("image_path", ())
    return (given,) if isinstance(given, str) else tuple(given)


def _profile(flags: GenerateFlags) -> ProfileOptions | None:
    steps = flags.get("num_profiled_timesteps", PROFILED_STEPS)
    if steps < -1 or steps == 0:
        raise UsageError(
            f"--num-profiled-timesteps is {steps}.", remedy="Give a positive number, or -1 for all steps."
        )
    if not flags.get("profile", False):
        asked = [name for name in PROFILE_FLAGS if flags.get(name)]
        if asked:
            flag = "--" + asked[0].replace("_", "-")
            raise UsageError(f"{flag} traces nothing without --profile.", remedy="Add --profile.")
        return None
    return ProfileOptions(
        steps=steps,
        all_stages=flags.get("profile_all_stages", False),
        detail=TraceDetail(flags.get("trace_detail", TraceDetail.SOURCE)),
        max_bytes=_max_bytes(flags),
        directory=_path(flags.get("profile_dir")),
    )


def _max_bytes(flags: GenerateFlags) -> int | None:
    megabytes = flags.get("max_trace_mb")
    if megabytes is None:
        return None
    if not 0 < megabytes < MOST_TRACE_MB:
        raise UsageError(f"--max-trace-mb is {megabytes}.", remedy="Give megabytes above zero.")
    return max(1, round(megabytes * 1e6))


def _output(flags: GenerateFlags) -> OutputOptions:
    directory, name = _path(flags.get("output_path")), flags.get("output_file_name")
    whole = _path(flags.get("output_file_path"))
    if whole is not None:
        if name is not None:
            raise UsageError("--output-file-path and --output-file-name exclude each other.")
        directory, name = whole.parent, whole.name
    return OutputOptions(save=flags.get("save_output", True), directory=directory, file_name=name)


def _load(flags: GenerateFlags) -> LoadRequest:
    return LoadRequest(
        model=flags.get("model_path"),
        load_format=LoadFormat(flags.get("load_format", LoadFormat.AUTO)),
        device=flags.get("device"),
        dtype=flags.get("dtype"),
        precision=Precision(
            dit=flags.get("dit_precision"),
            vae=flags.get("vae_precision"),
            text_encoder=flags.get("text_encoder_precision"),
        ),
        revision=flags.get("revision"),
        variant=flags.get("variant"),
        trust_remote_code=flags.get("trust_remote_code", False),
        offload=_offload(flags),
        attention_backend=flags.get("attention_backend"),
        compile=_compile(flags),
        image_input=bool(_images(flags)),
        vae_tiling=flags.get("vae_tiling", False),
        vae_slicing=flags.get("vae_slicing", False),
        lora_path=flags.get("lora_path"),
        lora_scale=flags.get("lora_scale", 1.0),
        denoiser_layers=flags.get("denoiser_layers"),
    )


def _offload(flags: GenerateFlags) -> Offload:
    asked = {OffloadKind(flags["offload"])} if "offload" in flags else set()
    if any(flags.get(name) for name in COMPONENT_OFFLOADS):
        asked.add(OffloadKind.MODEL)
    if flags.get("dit_layerwise_offload"):
        asked.add(OffloadKind.BLOCK)
    if len(asked) > 1:
        named = " and ".join(sorted(asked))
        raise UsageError(f"{named} offload exclude each other.", remedy="Give one of them.")
    kind = asked.pop() if asked else OffloadKind.NONE
    return Offload(kind=kind, pin=flags.get("pin_cpu_memory", True))


def _compile(flags: GenerateFlags) -> CompileKind:
    kind = CompileKind(flags.get("compile", CompileKind.NONE))
    if not flags.get("enable_torch_compile", False):
        return kind
    if "compile" in flags and kind is CompileKind.NONE:
        raise UsageError("--enable-torch-compile and --compile none exclude each other.")
    return CompileKind.WHOLE if kind is CompileKind.NONE else kind


def _check_texts(flags: GenerateFlags) -> None:
    """An empty value is a shell variable that was not set: nothing else would do what was meant."""
    for name, value in flags.items():
        if value == "" and name not in {"prompt", "negative_prompt"}:
            raise UsageError(f"--{name.replace('_', '-')} is empty.", remedy="Give a value or leave it out.")


def _path(value: str | Path | None) -> Path | None:
    """The path; UsageError where no file system can have it."""
    if value is None:
        return None
    try:
        return possible_path(Path(value).expanduser())
    except (RuntimeError, ValueError) as error:  # ~nobody-there
        raise UsageError(f"{str(value)[:80]!r} cannot be a path: {error}.") from error
