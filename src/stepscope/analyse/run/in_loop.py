"""What a run does again between denoising steps, and what that costs: encoding, decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.analyse.results import Finding
from stepscope.model.dump import DumpStage, PerfDump
from stepscope.model.vocabulary import UNMARKED, Stage

IN_LOOP_IDS = ("loop.encoding", "loop.decoding")

IN_LOOP_FROM = 0.025
"""Share of the call that the work between steps must take to be told: just above what a run may be off
(``dump_trust.TOLERANCE``), for all of it can be won."""

AGAIN = 2
"""Times between steps from which it is again: once is a prompt that changes half-way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    id: str
    stages: tuple[Stage, ...]
    title: str
    remedy: str


_WORKS = (
    _Work(
        id=IN_LOOP_IDS[0],
        stages=(Stage.TEXT_ENCODING, Stage.IMAGE_ENCODING, Stage.IMAGE_VAE_ENCODING),
        title="{stage} runs again between denoising steps",
        remedy="What does not change from step to step belongs before the loop: encode once and pass the "
        "result (prompt_embeds, image_embeds, latents) on.",
    ),
    _Work(
        id=IN_LOOP_IDS[1],
        stages=(Stage.DECODING,),
        title="{stage} runs between denoising steps: previews",
        remedy="Show one every few steps, decode smaller latents, or take a tiny decoder for previews "
        "(diffusers' AutoencoderTiny).",
    ),
)


def work_between_steps(dump: PerfDump) -> tuple[Finding, ...]:
    """One finding for each stage that comes back between steps and takes a share worth telling."""
    between = list(_between(dump.stages))
    return tuple(
        finding
        for work in _WORKS
        for name in work.stages
        for finding in _told(work, [stage for stage in between if stage.name == name.value], dump)
    )


def _told(work: _Work, stages: list[DumpStage], dump: PerfDump) -> Iterator[Finding]:
    cost_ms = sum(stage.duration_ms for stage in stages)
    if len(stages) < AGAIN or cost_ms < IN_LOOP_FROM * dump.total_duration_ms or dump.total_duration_ms <= 0:
        return
    share = cost_ms / dump.total_duration_ms
    yield Finding(
        id=work.id,
        title=work.title.format(stage=stages[0].name),
        evidence=(
            f"it ran {len(stages):,} times between the {len(dump.denoise_steps_ms):,} steps, "
            f"{cost_ms / len(stages):,.1f} ms each: {100 * share:.1f} % of the call"
        ),
        cost_ms=cost_ms,
        source=None,
        remedy=work.remedy,
    )


def _between(stages: tuple[DumpStage, ...]) -> Iterator[DumpStage]:
    """Occurrences between two of the denoising stage, of one loop: a loop that begins sets its timesteps."""
    waiting: list[DumpStage] | None = None  # none: no denoising before
    for stage in stages:
        if stage.name == Stage.DENOISING.value:
            yield from waiting or ()
            waiting = []
        elif stage.name in _LOOP_BEGINS:
            waiting = None
        elif waiting is not None and stage.name not in UNMARKED:
            waiting.append(stage)


_LOOP_BEGINS = (Stage.TIMESTEP_PREPARATION.value, Stage.LATENT_PREPARATION.value)
