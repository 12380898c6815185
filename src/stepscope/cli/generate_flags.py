"""The flags of ``stepscope generate``: SGLang's spellings and forms where it has them.

Every flag's default is "not given", so that a configuration file can fill what the command line leaves open;
what then happens is stated in the help and decided where the flag is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType

from stepscope.cli.values import add_switch, boolean, finite, json_object, megabytes, positive, step_count
from stepscope.session.one_process import CACHES, ONE_PROCESS, ONLY_FALSE, ONLY_ONE

SIZES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"720p": (1280, 720), "1080p": (1920, 1080), "2k": (2560, 1440), "4k": (3840, 2160)}
)
"""Width and height of the size flags."""

OFFLOAD_FLAGS = (
    "--dit-cpu-offload",
    "--text-encoder-cpu-offload",
    "--image-encoder-cpu-offload",
    "--vae-cpu-offload",
)

SERVER = "it configures a server; this command runs none."

NOT_HERE: Mapping[str, str] = MappingProxyType(
    {
        "--dist-timeout": ONE_PROCESS,
        "--data-type": "the model decides whether it makes pictures or videos.",
        "--host": SERVER,
        "--port": SERVER,
        "--scheduler-port": SERVER,
        "--enable-metrics": SERVER,
        "--warmup-mode": SERVER,
        "--warmup-resolutions": "the warm-up always has the shapes of the request.",
        "--cache-dit-config": CACHES,
        "--attention-backend-config": "diffusers' attention backends take no configuration.",
        "--performance-mode": "say what you want with the single flags.",
        "--quality": "say what you want with the single flags.",
        "--return-frames": "use the Python API: stepscope.generate() returns the frames.",
        "--return-file-paths-only": "use the Python API: stepscope.generate() returns paths and frames.",
        "--lora-nickname": "there is one LoRA, and it needs no name.",
        "--vae-path": "put the component into the model's folder.",
        "--transformer-path": "put the component into the model's folder.",
    }
)
"""Flags of ``sglang generate`` that this command does not have, and why."""


TRACE_DETAILS: Mapping[str, str] = MappingProxyType(
    {
        "kernels": "device activity and launches (as source)",
        "ops": "and PyTorch's operators (1.2; 1.65)",
        "source": "kernels, each with the operator, module and exact line that a slow request beforehand "
        "has found (1.02; 1.3 to 1.4)",
        "full": "operators with shapes and Python frames in every traced step, as SGLang records them "
        "(1.3 to 1.6; 2.2 to 2.8)",
    }
)
"""What each detail records, and how many times as long a traced step takes on an H200: full Qwen-Image; then
four of its blocks at 256x256, where the host is the bottleneck (docs/measurements.md)."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add every flag, in groups."""
    _add_request(parser.add_argument_group("what to generate"))
    _add_profiling(parser.add_argument_group("what to measure"))
    _add_output(parser.add_argument_group("where the results go"))
    _add_model(parser.add_argument_group("which model and how it is loaded"))
    _add_tuning(parser.add_argument_group("how it runs"))
    _add_what_runs_anyway(parser.add_argument_group("as in scripts for SGLang"))
    more = parser.add_argument_group("configuration")
    more.add_argument("--config", metavar="FILE", help="YAML or JSON with any of these flags; flags win")
    more.add_argument(
        "--diffusers-kwargs", type=json_object, metavar="JSON", help="further arguments of the pipeline call"
    )
    more.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="what the libraries may say on standard error (default: error)",
    )


def _add_what_runs_anyway(group: argparse._ArgumentGroup) -> None:
    """Flags that take what this command does anyway; session.one_process refuses the rest."""
    for name, what in ONLY_ONE.items():
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, type=positive, metavar="N", help=f"1: {what} is not in this version")
    for name, (what, _) in ONLY_FALSE.items():
        add_switch(
            group, "--" + name.replace("_", "-"), default=False, text=f"{what}, which is not in this version"
        )


def _add_request(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--prompt", nargs="+", metavar="TEXT", help="one prompt or several: one run each")
    group.add_argument(
        "--prompt-path", "--prompt-file-path", metavar="FILE", help="text file with one prompt a line"
    )
    group.add_argument("--negative-prompt", metavar="TEXT", help="what to keep out (default: the model's)")
    group.add_argument("--image-path", nargs="+", metavar="FILE", help="input image or images")
    group.add_argument("--seed", type=int, metavar="N", help="seed of the noise (default: 42)")
    group.add_argument("--generator-device", metavar="DEVICE", help="where the noise is drawn")
    group.add_argument("--num-inference-steps", type=positive, metavar="N", help="(default: the model's)")
    group.add_argument("--guidance-scale", type=finite, metavar="X", help="(default: the model's)")
    group.add_argument("--guidance-scale-2", type=finite, metavar="X", help="of the second denoiser")
    group.add_argument("--true-cfg-scale", type=finite, metavar="X", help="classifier-free guidance proper")
    group.add_argument("--guidance-rescale", type=finite, metavar="X", help="(default: the model's)")
    group.add_argument("--height", type=positive, metavar="PIXELS", help="(default: the model's)")
    group.add_argument("--width", type=positive, metavar="PIXELS", help="(default: the model's)")
    for name, (width, height) in SIZES.items():
        group.add_argument(
            f"--{name}", dest="size", action="store_const", const=name, help=f"{width} x {height}"
        )
    group.add_argument("--num-frames", type=positive, metavar="N", help="(default: the model's)")
    group.add_argument("--fps", type=positive, metavar="N", help="of the saved video (default: the model's)")
    group.add_argument("--num-outputs-per-prompt", type=positive, metavar="N", help="(default: 1)")


def _add_profiling(group: argparse._ArgumentGroup) -> None:
    add_switch(group, "--profile", default=False, text="trace with torch.profiler; see --trace-detail")
    group.add_argument(
        "--num-profiled-timesteps",
        type=step_count,
        metavar="N",
        help="steps to trace after step 0; -1: all of them (default: 5)",
    )
    add_switch(group, "--profile-all-stages", default=False, text="trace the whole call, with --profile")
    group.add_argument(
        "--trace-detail",
        choices=tuple(TRACE_DETAILS),
        help=f"{'; '.join(f'{name}: {text}' for name, text in TRACE_DETAILS.items())}; in brackets how many "
        "times as long a step takes: full Qwen-Image, a launch-bound cut of it (default: source)",
    )
    group.add_argument(
        "--max-trace-mb",
        type=megabytes,
        metavar="MB",
        help="largest trace file: fewer steps are kept where they would not fit (default: no limit)",
    )
    group.add_argument("--perf-dump-path", metavar="FILE", help="write stage and step times as JSON")
    add_switch(
        group,
        "--warmup",
        default="true where something is timed or traced",
        text="run a request of the same shapes first",
    )
    group.add_argument("--no-warmup", dest="warmup", action="store_false", help="no warm-up request")
    group.add_argument("--warmup-steps", type=positive, metavar="N", help="steps of it (default: 2)")
    add_switch(
        group,
        "--enable-nvtx",
        default="true under Nsight Systems",
        text="NVTX ranges: stages, steps, forwards",
    )
    add_switch(
        group, "--enable-layerwise-nvtx-marker", default=False, text="an NVTX range for each module, too"
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output-path", metavar="DIR", help="of pictures and videos (default: outputs)")
    group.add_argument(
        "--output-file-name", metavar="NAME", help="(default: from the prompt, the time and the run's id)"
    )
    group.add_argument("--output-file-path", metavar="FILE", help="folder and name in one")
    add_switch(group, "--save-output", default=True, text="write pictures and videos")
    group.add_argument("--no-save-output", dest="save_output", action="store_false", help="write none")
    group.add_argument(
        "--profile-dir",
        metavar="DIR",
        help="folder of traces (default: STEPSCOPE_PROFILE_DIR, SGLANG_DIFFUSION_TORCH_PROFILER_DIR, "
        "SGLANG_TORCH_PROFILER_DIR, ./logs)",
    )
    group.add_argument(
        "--run-dir", metavar="DIR", help="keep everything of a run together: run.json, traces, outputs"
    )


def _add_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model-path",
        metavar="MODEL",
        help="hub id, folder or one of stepscope models (default: tiny/qwen-image)",
    )
    group.add_argument(
        "--load-format",
        choices=("auto", "dummy"),
        help="dummy: seeded random weights, no download (default: auto)",
    )
    group.add_argument("--revision", metavar="REV", help="branch, tag or commit on the hub")
    group.add_argument("--variant", metavar="NAME", help="file variant on the hub, such as fp16")
    add_switch(group, "--trust-remote-code", default=False, text="run code that comes with the model")
    group.add_argument("--backend", choices=("auto", "diffusers"), help="(default: auto, which is diffusers)")
    group.add_argument("--device", metavar="DEVICE", help="cuda, cuda:1, xpu, mps, cpu (default: the best)")
    group.add_argument("--dtype", metavar="DTYPE", help="(default: bf16 on an accelerator, fp32 on a CPU)")
    group.add_argument("--dit-precision", metavar="DTYPE", help="of the denoisers (default: --dtype)")
    group.add_argument("--vae-precision", metavar="DTYPE", help="of the VAE (default: --dtype)")
    group.add_argument("--text-encoder-precision", metavar="DTYPE", help="(default: --dtype)")
    group.add_argument("--lora-path", metavar="LORA", help="LoRA weights to add")
    group.add_argument("--lora-scale", type=finite, metavar="X", help="(default: 1.0)")
    group.add_argument("--denoiser-layers", type=positive, metavar="N", help="cut dummy denoisers")


def _add_tuning(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--attention-backend", metavar="NAME", help="torch_sdpa, fa, sage_attn, ...")
    add_switch(group, "--enable-torch-compile", default=False, text="compile the denoisers whole")
    group.add_argument(
        "--compile", choices=("none", "regional", "whole"), help="what is compiled (default: none)"
    )
    add_switch(group, "--vae-tiling", default=False, text="decode in tiles")
    add_switch(group, "--vae-slicing", default=False, text="decode one picture at a time")
    group.add_argument(
        "--offload",
        choices=("none", "model", "sequential", "block", "leaf"),
        help="how weights are moved between host and device (default: none)",
    )
    for flag in OFFLOAD_FLAGS:
        add_switch(group, flag, default=False, text="the same as --offload model: all components")
    add_switch(group, "--dit-layerwise-offload", default=False, text="the same as --offload block")
    group.add_argument(
        "--pin-cpu-memory",
        nargs="?",
        const=True,
        type=boolean,
        metavar="BOOL",
        help="page-lock offloaded weights and prefetch them (default: true)",
    )
