"""What observation leaves behind: the bare marks of one pipeline call, before anything is made of them.

A live pipeline only appends to a list; ``capture`` freezes that list into a ``Recording`` and
``analyse.assemble`` turns it into stages and steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.run import Anchor, Clock, CpuUse, MemoryReading, OutsideRun, Pause, ThreeEnds
from stepscope.model.vocabulary import CopyKind, Stage, Word


class CallKind(Word):
    """What a known call does for a pipeline, told from the type of the object it is a method of."""

    PIPELINE = "pipeline"  # a pipeline inside a pipeline: no stage of its own
    VALIDATION = "validation"
    TEXT_ENCODING = "text_encoding"
    IMAGE_ENCODING = "image_encoding"
    VAE_ENCODING = "vae_encoding"
    LATENTS = "latents"
    TIMESTEPS = "timesteps"
    FORWARD = "forward"  # a denoiser
    CONDITIONER = "conditioner"  # a ControlNet or adapter that runs before the denoiser in each step
    SCHEDULER_STEP = "scheduler_step"
    DECODING = "decoding"
    POSTPROCESSING = "postprocessing"
    TRANSFER = "transfer"  # weights moved by an offload hook: no stage either
    PAUSE = "pause"  # a profiler being started or stopped
    CUSTOM = "custom"  # a stage named by the user
    STEP = "step"  # an iteration marked by the user
    ITERATION = "iteration"  # the pipeline's progress bar moves on: an iteration of its loop has ended
    HOUSEKEEPING = "housekeeping"  # known, but no stage of its own: it belongs to what is around or after it


STAGE_OF = {
    CallKind.VALIDATION: Stage.INPUT_VALIDATION,
    CallKind.TEXT_ENCODING: Stage.TEXT_ENCODING,
    CallKind.IMAGE_ENCODING: Stage.IMAGE_ENCODING,
    CallKind.VAE_ENCODING: Stage.IMAGE_VAE_ENCODING,
    CallKind.LATENTS: Stage.LATENT_PREPARATION,
    CallKind.TIMESTEPS: Stage.TIMESTEP_PREPARATION,
    CallKind.FORWARD: Stage.DENOISING,
    CallKind.CONDITIONER: Stage.DENOISING,
    CallKind.SCHEDULER_STEP: Stage.DENOISING,
    CallKind.DECODING: Stage.DECODING,
    CallKind.POSTPROCESSING: Stage.POSTPROCESSING,
    CallKind.STEP: Stage.DENOISING,  # where no stage named by the user is around it
}
"""The stage a known call belongs to; kinds that are not here have none."""


BETWEEN_STEPS = "the engine was at something else"
"""Why a call rested (``Pause.reason``): engines that schedule each step leave a request and come back."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant: ``perf_counter_ns``, and device time since the recording's first mark if there is any."""

    host_ns: int
    device_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What an offload hook moved during one TRANSFER call."""

    kind: CopyKind
    bytes: int
    pinned: bool | None
    stream_ns: int | None = None  # on a stream of its own; None: it ran on the stream that computes


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The beginning or the end of a known call. Edges nest like brackets and are in order of time."""

    kind: CallKind
    entering: bool
    at: Moment
    component: str  # the pipeline's own name for the object: transformer, vae, scheduler
    method: str = ""
    stage: str | None = None
    batch: int | None = None  # FORWARD, entering: first dimension of the sample
    label: str | None = None  # FORWARD, entering: what the pipeline calls it (cond, uncond)
    solver_order: int = 1  # SCHEDULER_STEP
    move: Move | None = None  # TRANSFER, leaving

    @property
    def name(self) -> str:
        """What a span of this call is called: ``vae.decode``, ``transformer.forward``."""
        return f"{self.component}.{self.method}" if self.method else self.component


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedForward:
    """One call of a denoiser that has a step cache mounted, in the order of the run."""

    blocks: int  # transformer blocks that were computed, as they were seen
    of_blocks: int
    cached: bool | None  # what the cache itself says of it; None: it could not be asked
    parts: int = 0  # how many were computed of those that diffusers' hooks may skip: blocks, or attention
    of_parts: int = 0
    reduced: bool = False  # it was computed for a part of the batch only: guidance's other half is estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReading:
    """The allocator at one moment on the host clock."""

    host_ns: int
    reading: MemoryReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One pipeline call as it was seen. ``start`` and ``end`` enclose every edge."""

    clock: Clock
    start: Moment
    end: Moment
    ends: ThreeEnds
    edges: tuple[Edge, ...]
    pauses: tuple[Pause, ...] = ()
    profiled: tuple[tuple[int, int], ...] = ()  # host intervals in which a profiler recorded
    memory: tuple[TimedReading, ...] = ()
    memory_before: MemoryReading | None = None
    memory_after: MemoryReading | None = None
    memory_reason: str | None = None
    anchors: tuple[Anchor, ...] = ()
    device: str | None = None
    stream: int | None = None  # torch's number of the one that was current when the call began
    thread: int | None = None
    outside: tuple[OutsideRun, ...] = ()
    warnings: tuple[str, ...] = ()
    incomplete_reason: str | None = None
    block: bool = False  # of code that marks its own stages, not a pipeline's call
    created_unix_ns: int = 0
    graph_replays: int | None = None
    cache: str | None = None  # which step cache was mounted
    cached_forwards: tuple[CachedForward, ...] = ()  # one for each FORWARD, where one was
    cpu: CpuUse | None = None
