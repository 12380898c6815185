"""A run: one call of a pipeline, with its environment, arguments, spans and files.

All times are integer nanoseconds. Host times are readings of ``time.perf_counter_ns`` in the recording
process; device times count from the run's first mark on that device. ``Anchor`` ties them to the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.model.vocabulary import ClockKind, CopyKind, StepWork

RUN_SCHEMA_VERSION = 1
"""1 (2026-11): first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One moment read on several clocks, so that a dump, a trace and another rank can be aligned."""

    unix_ns: int
    host_ns: int
    device: str | None = None
    device_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One uninterrupted piece of a span; a profiler pause cuts a span into segments."""

    host_start_ns: int
    host_end_ns: int
    device_start_ns: int | None = None
    device_end_ns: int | None = None

    @property
    def host_ns(self) -> int:
        """Time the host spent issuing this piece; a duration only where the host does the work."""
        return self.host_end_ns - self.host_start_ns

    @property
    def device_ns(self) -> int | None:
        """Time between the device events at both ends, or None where the run has no device clock."""
        if self.device_start_ns is None or self.device_end_ns is None:
            return None
        return self.device_end_ns - self.device_start_ns

    @property
    def duration_ns(self) -> int:
        """The true duration by the run's clock: device events where there are any, else the host."""
        device_ns = self.device_ns
        return self.host_ns if device_ns is None else device_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A named interval made of segments, with the device, stream and thread it was issued on."""

    name: str
    segments: tuple[Segment, ...]
    device: str | None = None
    stream: int | None = None
    thread: int | None = None

    @property
    def host_ns(self) -> int:
        """Host-issue time, pauses excluded."""
        return sum(segment.host_ns for segment in self.segments)

    @property
    def device_ns(self) -> int | None:
        """Device time, pauses excluded; None if any segment has none."""
        parts = [segment.device_ns for segment in self.segments]
        if not parts or any(part is None for part in parts):
            return None
        return sum(part for part in parts if part is not None)

    @property
    def duration_ns(self) -> int:
        """The true duration by the run's clock, pauses excluded."""
        device_ns = self.device_ns
        return self.host_ns if device_ns is None else device_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """The device allocator's state at one moment, in bytes. Peaks count from the run's start."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One occurrence of a stage."""

    span: Span
    stage_index: int  # 0-based position among all stage occurrences of the run
    inferred_ns: int  # part of the duration that lies in gaps between known calls
    calls: tuple[Span, ...] = ()  # the known calls inside, in order
    memory: MemoryReading | None = None  # at its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """One call of a denoiser inside a step."""

    span: Span
    component: str  # the pipeline's own name for it: transformer, transformer_2, unet
    batch: int | None = None  # first dimension of the sample: 2 where guidance doubles the batch
    work: StepWork = StepWork.COMPUTED
    label: str | None = None  # the pipeline's own name for it, where it tells one: cond, uncond, ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """Time of one step in known calls of one name, or in the gap that ``name`` tells the place of."""

    name: str  # unet.forward; before unet.forward, between unet.forward and scheduler.step
    duration_ns: int
    known: bool  # in a known call; False: in a gap between such


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One iteration of a denoising loop; ``index`` is 0-based and runs on over several denoising stages."""

    index: int
    stage_index: int
    span: Span
    forwards: tuple[Forward, ...] = ()
    scheduler_calls: int = 1
    solver_order: int = 1
    traced: bool = False  # a profiler was recording during it
    profiler_warmup: bool = False  # the first step under a profiler: its time is not typical
    work: StepWork = StepWork.COMPUTED
    parts: tuple[StepPart, ...] = ()  # they sum to its duration


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideRun:
    """Something around the pipeline call (``Outside``), on the host clock. Never part of the total."""

    name: str
    host_start_ns: int
    host_end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.host_end_ns - self.host_start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Time in which a profiler was started, stopped or exported; in no stage, step or total."""

    reason: str
    host_start_ns: int
    host_end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.host_end_ns - self.host_start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Weights moved by offloading, all moves of one component in one direction summed."""

    component: str
    kind: CopyKind
    count: int
    bytes: int
    pinned: bool | None
    duration_ns: int  # time the moves took on the stream that made them
    exposed_ns: int | None  # part of it that the denoiser, encoder or decoder had to wait for
    stage_index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeEnds:
    """When a run ended, three ways; host clock."""

    start_ns: int
    returned_ns: int  # the pipeline call gave control back
    device_done_ns: int  # the device had finished
    on_host_ns: int | None = None  # the result was readable on the host


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """The CPU time that the process got during the pipeline call."""

    wall_ns: int
    cpu_ns: int  # of all threads together
    cpus: int  # that the process may run on
    waited_ns: int | None = None  # ready to run without a CPU, the working thread that waited longest
    involuntary_switches: int | None = None
    held_up_ns: int = 0  # while another thread of the process started, stopped or exported its profiler


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheckpoint:
    """The allocator at a named moment: before_forward, after_forward, after_<Stage>."""

    name: str
    reading: MemoryReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One saved or returned picture or video."""

    path: str | None
    sha256: str  # of the raw pixels, not of the file
    kind: str  # image | video | audio | other
    finite: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """What was done before the measured call."""

    requests: int
    steps_each: int
    steady: bool | None  # None: not warmed up, nothing known
    reason: str = ""  # why it stopped, or why there was none
    durations_ns: tuple[int, ...] = ()
    last_step_ns: int | None = (
        None  # of the last request, before any profiler: what traced steps are held against
    )
    last_step_forwards: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """Which steps a trace file holds. ``steps`` are the recorded indices; full_stages holds everything."""

    path: str
    steps: tuple[int, ...]
    full_stages: bool
    asked: int  # --num-profiled-timesteps as given
    note: str = ""  # said when fewer than asked exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a run happened. Never holds environment variables."""

    stepscope: str
    python: str
    platform: str
    host: str
    packages: dict[str, str] = field(default_factory=dict)  # torch, diffusers, transformers, ...
    device_kind: str = "cpu"  # cuda | rocm | xpu | mps | cpu
    device_name: str = ""
    device_count: int = 0
    driver: str | None = None
    runtime: str | None = None  # CUDA or HIP version
    cpu_count: int = 0
    threads: int = 0
    clocks: dict[str, int] = field(default_factory=dict)  # MHz, celsius, watts at the start, as NVML names
    commit: str | None = None


AS_LOADED = "attached"
"""The load format of a run whose pipeline somebody else's program loaded: what it asked for is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What was asked for."""

    model: str
    pipeline_class: str
    components: dict[str, str] = field(default_factory=dict)  # name -> class
    load_format: str = "auto"  # auto | dummy | AS_LOADED
    prompt: str = ""
    negative_prompt: str | None = None
    seed: int | None = None
    steps: int | None = None
    guidance: dict[str, float] = field(default_factory=dict)
    height: int | None = None
    width: int | None = None
    frames: int | None = None
    outputs_per_prompt: int = 1
    dtype: str = ""
    component_dtypes: dict[str, str] = field(default_factory=dict)  # name -> dtype of its weights
    offload: str = "none"
    compile: str = "none"
    attention_backend: str = "default"
    weights: str = ""  # folder: read from a local folder; else as load_format says
    arguments: dict[str, str] = field(default_factory=dict)  # every further call argument, as text


@dataclass(frozen=True, slots=True, kw_only=True)
class Engaged:
    """What was seen at work, as against what was asked for. None: could not be seen."""

    attention: str | None = None
    compiled_modules: int | None = None
    compile_events: int | None = None  # compilations during the measured call: 0 is the healthy value
    graph_replays: int | None = None
    cached_steps: int | None = None
    gemm_dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCacheUse:
    """What a step cache did in one run, and what it was worth."""

    name: str  # cache-dit, FirstBlockCache, ...; several are joined by commas
    cached_steps: tuple[int, ...]  # steps with at least one forward that was not fully computed
    theoretical_speedup: float | None  # all blocks over computed ones; None where blocks are cached in part
    effective_speedup: float | None  # denoising if every step took a computed one's median, over as measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Which clock durations come from, and what the start-up self-test said of it."""

    kind: ClockKind
    self_test: str
    trusted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One observed pipeline call, complete or not. The saved run is the product's centre."""

    request_id: str
    call_id: int
    clock: Clock
    environment: Environment
    workload: Workload
    schema_version: int = RUN_SCHEMA_VERSION
    created_unix_ns: int = 0
    rank: int = 0
    world_size: int = 1
    anchors: tuple[Anchor, ...] = ()
    ends: ThreeEnds | None = None
    total_ns: int | None = None  # wall time between two synchronisations, pauses excluded; its own clock
    stages: tuple[StageRun, ...] = ()
    steps: tuple[StepRun, ...] = ()
    outside: tuple[OutsideRun, ...] = ()
    pauses: tuple[Pause, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    memory: tuple[MemoryCheckpoint, ...] = ()
    memory_reason: str | None = None  # why there is no memory reading
    warmup: Warmup | None = None
    traces: tuple[TraceWindow, ...] = ()
    outputs: tuple[Output, ...] = ()
    engaged: Engaged = Engaged()
    step_cache: StepCacheUse | None = None  # None: no step cache was mounted
    cpu: CpuUse | None = None
    warnings: tuple[str, ...] = ()
    incomplete_reason: str | None = None
