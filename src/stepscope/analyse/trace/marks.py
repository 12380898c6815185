"""What names in a trace say about stages, steps and forwards: annotations and Python frames.

The rules are data: a pattern and what it means. None names a pipeline. Sources of the spellings: SGLang
Diffusion (``STAGE X``, ``stage_X``, ``denoising_step_3_t0.5``), vLLM-Omni (``diffusion_step``,
``pipeline_forward``), the diffusers profiling example (``transformer_forward``, ``vae_decode``) and
torch.profiler (``ProfilerStep#3``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from stepscope.model.vocabulary import FORWARD_SPAN_PREFIX, STEP_SPAN_PREFIX, TRANSFER_SPAN, Stage


class MarkKind(Enum):
    """What a named range stands for."""

    STAGE = "stage"
    STEP = "step"
    PROFILER_STEP = "profiler step"
    FORWARD = "forward"
    SCHEDULER = "scheduler"
    PIPELINE = "pipeline"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The meaning of one name. ``index`` is the step's number where the name has one."""

    kind: MarkKind
    name: str = ""
    index: int | None = None


_STAGE_NAME = re.compile(r"^(?:STAGE |stage_)?([A-Za-z]\w*?)(?:\.forward)?$")
_STEP_NAME = re.compile(rf"^{STEP_SPAN_PREFIX}(\d+)(?:_t\S*)?$")
_PROFILER_STEP_NAME = re.compile(r"^ProfilerStep#(\d+)$")
_NAMED: tuple[tuple[re.Pattern[str], Mark], ...] = (
    (re.compile(r"^diffusion_step$"), Mark(kind=MarkKind.STEP)),
    (re.compile(f"^{TRANSFER_SPAN}$"), Mark(kind=MarkKind.TRANSFER)),
    (
        re.compile(r"^(?:scheduler[._]step|\w*[Ss]cheduler\.step)$"),
        Mark(kind=MarkKind.SCHEDULER),
    ),
    (
        re.compile(r"^(?:Pipeline|pipeline_forward|diffusion_forward|pipeline_call)$"),
        Mark(kind=MarkKind.PIPELINE),
    ),
    (
        re.compile(r"^(?:denoising_loop|(?:\w+\.)?diffuse)$"),
        Mark(kind=MarkKind.STAGE, name=Stage.DENOISING.value),
    ),
    (
        re.compile(r"^(?:vae[._]decode|decode_latents)$"),
        Mark(kind=MarkKind.STAGE, name=Stage.DECODING.value),
    ),
    (re.compile(r"^vae[._]encode$"), Mark(kind=MarkKind.STAGE, name=Stage.IMAGE_VAE_ENCODING.value)),
    (
        re.compile(r"^(?:encode_prompt|text_encoder(?:_\d)?[._]forward)$"),
        Mark(kind=MarkKind.STAGE, name=Stage.TEXT_ENCODING.value),
    ),
    (
        re.compile(r"^image_encoder[._]forward$"),
        Mark(kind=MarkKind.STAGE, name=Stage.IMAGE_ENCODING.value),
    ),
    (
        re.compile(r"^(?:transformer|unet|dit|prior)(?:_\d)?[._]forward$|^predict_noise$"),
        Mark(kind=MarkKind.FORWARD),
    ),
)


def annotation_mark(name: str) -> Mark | None:
    """What an annotation's name stands for; None for one that says nothing of stages and steps."""
    step = _STEP_NAME.match(name)
    if step:
        return Mark(kind=MarkKind.STEP, index=int(step[1]))
    step = _PROFILER_STEP_NAME.match(name)
    if step:
        return Mark(kind=MarkKind.PROFILER_STEP, index=int(step[1]))
    for pattern, mark in _NAMED:
        if pattern.match(name):
            return mark
    if name.startswith(FORWARD_SPAN_PREFIX):
        return Mark(kind=MarkKind.FORWARD, name=name.removeprefix(FORWARD_SPAN_PREFIX))
    stage = _STAGE_NAME.match(name)
    if stage and (name.startswith(("STAGE ", "stage_")) or stage[1].endswith("Stage")):
        return Mark(kind=MarkKind.STAGE, name=stage_name(stage[1]))
    return None


def stage_name(word: str) -> str:
    """A stage's name as SGLang spells classes: ``denoising_stage`` and ``denoising`` are DenoisingStage."""
    if word.endswith("Stage"):
        return word
    parts = [part for part in word.split("_") if part]
    camel = "".join(part[0].upper() + part[1:] for part in parts)
    camel = camel.replace("Vae", "VAE")
    return camel if camel.endswith("Stage") else camel + "Stage"


_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$")
_ENGINE_STAGE_FILE = re.compile(r"/pipelines_core/stages/(?:\w+/)*(?P<stem>\w+)\.py$")

_FRAME_STAGES: tuple[tuple[re.Pattern[str], re.Pattern[str], Stage], ...] = (
    (re.compile(r"pipeline"), re.compile(r"^check_inputs$"), Stage.INPUT_VALIDATION),
    (re.compile(r"pipeline"), re.compile(r"^encode_prompt$"), Stage.TEXT_ENCODING),
    (re.compile(r"pipeline"), re.compile(r"^encode_image$"), Stage.IMAGE_ENCODING),
    (
        re.compile(r"pipeline"),
        re.compile(r"^(?:prepare_image_latents|_?encode_vae_image|encode_vae)$"),
        Stage.IMAGE_VAE_ENCODING,
    ),
    (re.compile(r"/autoencoders?/|/vaes?/"), re.compile(r"^encode$"), Stage.IMAGE_VAE_ENCODING),
    (re.compile(r"pipeline"), re.compile(r"^prepare_latents$"), Stage.LATENT_PREPARATION),
    (
        re.compile(r"pipeline"),
        re.compile(r"^(?:retrieve_timesteps|prepare_timesteps|get_timesteps)$"),
        Stage.TIMESTEP_PREPARATION,
    ),
    (re.compile(r"/autoencoders?/|/vaes?/"), re.compile(r"^decode$"), Stage.DECODING),
    (re.compile(r"pipeline"), re.compile(r"^_?decode_latents$"), Stage.DECODING),
    (
        re.compile(r"(?:image|video|audio)_processor\.py$"),
        re.compile(r"^postprocess\w*$"),
        Stage.POSTPROCESSING,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameName:
    """The parts of a Python frame's name, ``file(line): function``."""

    file: str
    line: int
    function: str


def parse_frame(name: str) -> FrameName | None:
    """The parts of a frame's name; None for built-ins and modules, which name no file."""
    found = _FRAME.match(name)
    if not found:
        return None
    return FrameName(file=found["file"], line=int(found["line"]), function=found["function"])


def frame_mark(name: str) -> Mark | None:
    """What a Python frame stands for, told from its file and function; None for most."""
    frame = parse_frame(name)
    if frame is None:
        return None
    if frame.function == "step" and "schedul" in frame.file:
        return Mark(kind=MarkKind.SCHEDULER)
    engine = _ENGINE_STAGE_FILE.search(frame.file)
    if engine and frame.function == "forward" and engine["stem"] != "base":
        return Mark(kind=MarkKind.STAGE, name=stage_name(engine["stem"]))
    for file, function, stage in _FRAME_STAGES:
        if function.match(frame.function) and file.search(frame.file):
            return Mark(kind=MarkKind.STAGE, name=stage.value)
    return None
