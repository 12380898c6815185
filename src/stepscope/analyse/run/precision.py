"""Components that compute in float32 in a pipeline whose denoiser does not, where that costs device time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stepscope.analyse.results import Finding
from stepscope.model.dump import DumpStage, PerfDump
from stepscope.model.vocabulary import Stage

FLOAT32_IDS = (
    "components.float32_vae",
    "components.float32_text_encoder",
    "components.float32_image_encoder",
)
"""Their ids."""

FLOAT32_FROM = 0.05
"""Share of the call that the stages of a float32 component must take to be told. At half the bytes for each
weight and value, work that memory binds takes half the time: a win of 2.5 %, just above what a run may be off
(``dump_trust.TOLERANCE``)."""

_FULL = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Role:
    """What a component is for, told by diffusers' names, and where it computes."""

    id: str
    names: tuple[str, ...]  # how its name begins
    stages: tuple[Stage, ...]
    title: str
    remedy: str


_TRY = "Try {flag} (in code of your own {module}.to(torch.bfloat16)) and compare the pictures"
_ROLES = (
    _Role(
        id=FLOAT32_IDS[0],
        names=("vae", "vqgan", "vqvae", "movq"),
        stages=(Stage.DECODING, Stage.IMAGE_VAE_ENCODING),
        title="The VAE computes in float32",
        remedy=f"{_TRY}: some VAEs, that of SDXL among them, overflow in fp16 and give black pictures, "
        "and some model cards ask for float32.",
    ),
    _Role(
        id=FLOAT32_IDS[1],
        names=("text_encoder",),
        stages=(Stage.TEXT_ENCODING,),
        title="A text encoder computes in float32",
        remedy=f"{_TRY}; some T5 encoders overflow in fp16.",
    ),
    _Role(
        id=FLOAT32_IDS[2],
        names=("image_encoder",),
        stages=(Stage.IMAGE_ENCODING,),
        title="The image encoder computes in float32",
        remedy=f"{_TRY}.",
    ),
)
_FLAGS = {"vae": "--vae-precision bf16", "text_encoder": "--text-encoder-precision bf16"}
_DENOISERS = ("transformer", "unet", "prior", "decoder")


def float32_components(dump: PerfDump) -> tuple[Finding, ...]:
    """What is worth telling of one run; nothing on a CPU, which computes no faster in half precision."""
    dtypes = dump.workload.get("component_dtypes")
    if dump.environment.get("device_kind") in {None, "", "cpu"} or not isinstance(dtypes, Mapping):
        return ()
    denoisers = [dtype for name, dtype in dtypes.items() if str(name).startswith(_DENOISERS)]
    if not denoisers or _FULL in denoisers or dump.total_duration_ms <= 0:
        return ()
    return tuple(finding for role in _ROLES for finding in _of_role(role, dtypes, denoisers[0], dump))


def _of_role(role: _Role, dtypes: Mapping[str, str], usual: str, dump: PerfDump) -> Iterator[Finding]:
    mine = {name: dtype for name, dtype in dtypes.items() if str(name).startswith(role.names)}
    full = [name for name, dtype in mine.items() if dtype == _FULL]
    found = [stage for stage in dump.stages if stage.name in role.stages]
    cost_ms = sum(stage.duration_ms for stage in found)
    share = cost_ms / dump.total_duration_ms
    if not full or share < FLOAT32_FROM:
        return
    others = [name for name in mine if name not in full]
    beside = f", {', '.join(others)} included" if others else ""
    yield Finding(
        id=role.id,
        title=role.title,
        evidence=(
            f"{', '.join(full)} is float32, the denoiser {usual}: {_names(found)} takes {cost_ms:,.1f} ms, "
            f"{100 * share:.1f} % of the call{beside}; at most that can be won"
        ),
        cost_ms=cost_ms,
        source=None,
        remedy=role.remedy.format(flag=_FLAGS.get(role.names[0], "half precision"), module=f"pipe.{full[0]}"),
    )


def _names(stages: Sequence[DumpStage]) -> str:
    return " and ".join(dict.fromkeys(stage.name for stage in stages))
