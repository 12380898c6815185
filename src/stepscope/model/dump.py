"""The perf dump: the JSON behind ``--perf-dump-path``, field for field.

Every key of SGLang's dump is here with the same meaning and unit; the rest is ours. Durations are float
milliseconds because the published format has them so; nothing computes with them but the reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stepscope.model.run import StepCacheUse

DUMP_SCHEMA_VERSION = 1
"""1 (2026-11): first. 0 is what a dump without the key gets: SGLang's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDuration:
    """SGLang's ``steps`` entry: in truth a stage, summed by name."""

    name: str
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpForward:
    """One denoiser call inside a step."""

    component: str
    duration_ms: float
    host_ms: float | None = None
    batch: int | None = None
    work: str = "computed"
    label: str | None = None  # cond, uncond, ...: what the pipeline called it


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpStepPart:
    """Time of one step in known calls of one name, or in a gap between such."""

    name: str
    duration_ms: float
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpStep:
    """One denoising step. ``step`` and ``duration_ms`` are SGLang's."""

    step: int
    duration_ms: float
    stage_index: int | None = None
    host_ms: float | None = None
    device_ms: float | None = None
    forwards: tuple[DumpForward, ...] = ()
    solver_order: int = 1
    traced: bool = False
    profiler_warmup: bool = False
    work: str = "computed"
    parts: tuple[DumpStepPart, ...] = ()  # they sum to duration_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpStage:
    """One occurrence of a stage, in order."""

    name: str
    stage_index: int
    duration_ms: float
    start_ms: float = 0.0  # from the start of the pipeline call, pauses excluded
    host_ms: float | None = None
    device_ms: float | None = None
    inferred_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpTransfer:
    """Weights moved by offloading: one component, one direction."""

    component: str
    kind: str
    count: int
    bytes: int
    pinned: bool | None
    duration_ms: float
    exposed_ms: float | None
    stage_index: int | None = None  # the stage in which it happened; its time is not part of that stage


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpMemory:
    """SGLang's memory checkpoint: MiB (1024^2), two decimals."""

    allocated_mb: float
    reserved_mb: float
    peak_allocated_mb: float
    peak_reserved_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpTrust:
    """Whether the numbers agree with each other, and every reason why not."""

    ok: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfDump:
    """One run's stage and step times, as written to ``--perf-dump-path``."""

    timestamp: str
    request_id: str
    commit_hash: str
    tag: str
    total_duration_ms: float
    steps: tuple[NamedDuration, ...]
    denoise_steps_ms: tuple[DumpStep, ...]
    memory_checkpoints: dict[str, DumpMemory] | None = None
    meta: dict[str, Any] = field(default_factory=dict)  # prompt, model

    schema_version: int = 0
    memory_checkpoints_reason: str | None = None
    rank: int = 0
    world_size: int = 1
    call_number: int | None = None  # which call of its program it was, from 0
    stages: tuple[DumpStage, ...] = ()
    outside_stages: tuple[NamedDuration, ...] = ()
    returned_ms: float | None = None
    device_done_ms: float | None = None
    on_host_ms: float | None = None
    unaccounted_ms: float | None = None
    inferred_ms: float | None = None
    coverage: float | None = None  # share of the total inside known calls
    profiler_pause_ms: float | None = None
    traced_ms: float | None = None
    transfers: tuple[DumpTransfer, ...] = ()
    clock: str | None = None
    clock_self_test: str | None = None
    trust: DumpTrust | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    engaged: dict[str, Any] = field(default_factory=dict)
    step_cache: StepCacheUse | None = None
    warmup: dict[str, Any] | None = None
    traces: tuple[dict[str, Any], ...] = ()
    outputs: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    incomplete_reason: str | None = None
