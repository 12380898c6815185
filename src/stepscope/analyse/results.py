"""What analysis gives: frozen results, named as the report's JSON names them.

``render`` imports these and nothing else of ``analyse``. Times are float milliseconds here, because this is
the published form; shares and ratios are 0 to 1. A measurement that could not be made is None, and the
reason stands in the report's ``warnings``.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.run import StepCacheUse

REPORT_SCHEMA_VERSION = 1
"""1 (2026-11): first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whether the numbers agree with each other; every reason why not."""

    ok: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where in Python something was launched. ``line_exact``: the calling line, not the definition's."""

    file: str
    line: int
    line_exact: bool
    function: str
    module_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """A stage of a run, from a perf dump or a run record."""

    name: str
    stage_index: int
    duration_ms: float
    share: float  # of the run's total
    host_ms: float | None = None
    device_ms: float | None = None
    inferred_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPartTime:
    """Time of one step in known calls of one name, or in the gap that ``name`` tells the place of."""

    name: str
    duration_ms: float
    known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """A denoising step of a run."""

    index: int
    stage_index: int | None
    duration_ms: float
    host_ms: float | None = None
    forwards: int = 0
    traced: bool = False
    profiler_warmup: bool = False
    work: str = "computed"
    outlier: str | None = None  # in words: what differs in it
    parts: tuple[StepPartTime, ...] = ()  # they sum to the duration; empty where the dump has none


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """Whether steps are uniform: over computed, untraced steps where there are enough, see ``basis``."""

    count: int
    median_ms: float
    minimum_ms: float
    maximum_ms: float
    slowest: int  # index of the slowest step
    slowest_ratio: float  # slowest over median
    spread: float  # (p90 - p10) / median
    uniform: bool
    basis: str  # which steps were counted, in words
    decided_by: str = ""  # the number that makes them uniform or not, beside its limit, in words
    odd: int | None = None  # index of the step farthest from the median, slower or faster
    odd_ms: float | None = None
    odd_ratio: float | None = None  # over the median


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideTime:
    """Something around the pipeline call: loading, warm-up, saving."""

    name: str
    duration_ms: float
    share: float = 0.0  # of the total; 0 for what is not in it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run's times, reconciled: ``report`` shows it, ``compare`` compares it."""

    request_id: str
    path: str | None
    producer: str  # stepscope | sglang
    total_ms: float
    trust: Trust
    stages: tuple[StageTime, ...]
    steps: tuple[StepTime, ...]
    step_statistics: StepStatistics | None
    dominant_stage: str | None
    outside: tuple[OutsideTime, ...] = ()
    unaccounted_ms: float | None = None
    inferred_ms: float | None = None
    coverage: float | None = None
    profiler_pause_ms: float | None = None
    rank: int = 0
    environment: tuple[tuple[str, str], ...] = ()  # flattened, for tables and comparison
    workload: tuple[tuple[str, str], ...] = ()
    engaged: tuple[tuple[str, str], ...] = ()
    step_cache: StepCacheUse | None = None
    peak_memory_bytes: int | None = None
    incomplete_reason: str | None = None
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # that need no trace
    traced_ms: float | None = None  # of the total, in steps that a profiler recorded
    traced_over_warmup: float | None = None  # a traced step against the warm-up's last, which no profiler saw
    moved_ms: float = 0.0  # of the total, exposed moves of weights: in no stage
    moved_share: float = 0.0
    unaccounted_share: float = 0.0
    call_id: int | None = None  # which call of its program it was


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCause:
    """GPU idle time by what the host was doing meanwhile."""

    cause: str  # host_late | synchronising | allocation | start_end
    total_ms: float
    share: float  # of the GPU span


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """One rank's GPUs: from the first to the last kernel, copy or set."""

    name: str
    device_count: int
    kernel_count: int
    span_ms: float
    busy_ms: float  # interval union of kernels, copies and sets
    busy_ratio: float
    compute_ms: float
    communication_ms: float
    exposed_communication_ms: float
    copy_ms: float
    exposed_copy_ms: float
    idle_ms: float
    idle_causes: tuple[IdleCause, ...] = ()
    launch_count: int = 0
    launch_latency_median_us: float | None = None  # launch call's start to kernel's start, queue included
    kernels_without_launch: int = 0
    launches_without_kernel: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """A stage as the trace shows it."""

    name: str
    stage_index: int
    start_ms: float
    duration_ms: float
    gpu_busy_ms: float
    share: float  # of the rank's traced span
    kernel_count: int
    bound_by: str  # BoundBy
    inferred: bool = False
    idle_ms: float = 0.0
    launch_count: int = 0
    tflop: float | None = None
    tflop_per_s: float | None = None
    peak_share: float | None = None  # of the device's dense peak for the dtype that did the work
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A denoising step as the trace shows it."""

    index: int
    stage_index: int
    duration_ms: float
    gpu_busy_ms: float
    kernel_count: int
    forwards: int
    outlier: str | None
    inferred: bool
    start_ms: float = 0.0
    transfer_ms: float | None = None  # of it: weights that offloading moves, in no step of a perf dump
    source: Source | None = None  # whose code a slow step was in for longer than the others


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRow:
    """One denoiser call as the trace shows it."""

    step: int | None  # the step's own index; None outside of steps
    component: str  # as the recorder names it, or the module's class; empty unknown
    start_ms: float
    duration_ms: float
    gpu_busy_ms: float
    kernel_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRow:
    """GPU time by what kernels do."""

    name: str  # KernelCategory
    total_ms: float
    share: float
    count: int  # kernels
    copy_count: int = 0  # copies and fills: they are no kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """All launches of one kernel; or all calls of one operator, where there are no kernels."""

    name: str
    category: str
    count: int
    total_ms: float
    share: float  # of GPU busy time; an operator's of the traced steps
    mean_us: float
    source: Source | None
    grid: tuple[int, int, int] | None = None  # the most frequent
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    operator: str | None = None
    stages: tuple[str, ...] = ()
    ncu_command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow:
    """The operators that one line of Python called, or one module's code."""

    source: Source | None  # a line; None for a module
    module: str | None  # path of the module that takes most of it, its numbers as ``*``
    total_ms: float  # self time: without the operators inside
    share: float  # of the traced steps
    count: int  # operators
    category: str  # KernelCategory of most of the time
    operator: str  # that takes most of it
    module_count: int = 1  # modules that run through the line
    python_ms: float = 0.0  # in no operator, before those of this row
    calls: int | None = None  # of a module; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """What the operators took of the traced steps, where no GPU work was recorded.

    Times are self times: an operator's own, without those inside it. They sum to ``inside_ms``; the rest of
    ``traced_ms`` is Python between operators.
    """

    basis: str  # what of the trace is counted, in words: "5 steps"
    traced_ms: float
    inside_ms: float
    calling_ms: float  # of the rest, Python that calls the next operator: pauses below a millisecond
    count: int
    outermost_count: int  # of them, in no other operator
    located_share: float | None  # of the operators' time, with a source line; None: no sources recorded
    rows: tuple[KernelRow, ...]
    categories: tuple[CategoryRow, ...]
    lines: tuple[PlaceRow, ...]
    modules: tuple[PlaceRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRow:
    """Copies of one direction, kind of host memory, stage and asker."""

    kind: str  # CopyKind
    pinned: bool | None
    count: int
    bytes: int
    total_ms: float
    gb_per_s: float
    exposed_ms: float  # no kernel ran meanwhile
    stage: str | None
    source: Source | None
    operator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngagedView:
    """What was seen at work."""

    attention: str | None  # kernel family: flash, cudnn, memory-efficient, math, sage, ...
    gemm_dtypes: tuple[str, ...]
    compiled_kernel_share: float  # of GPU busy time in Triton / inductor kernels
    graph_replays: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRow:
    """All ranges of one name that the recorder was given, and what was launched inside them."""

    name: str
    count: int
    host_ms: float
    kernel_count: int
    gpu_busy_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """Allocated device memory over time, thinned for drawing."""

    at_ms: float
    allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyPoint:
    """GPU busy share in one slice of time, for drawing."""

    at_ms: float
    busy_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One explained inefficiency: what it costs, where it is, what to do."""

    id: str
    title: str
    evidence: str
    cost_ms: float | None
    source: Source | None
    remedy: str
    severity: str = "warning"  # info | warning


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """Everything said of one trace."""

    rank: int
    path: str
    request_id: str | None
    source: str  # TraceSource
    event_count: int
    gpu: GpuSummary | None
    stages: tuple[StageRow, ...]
    steps: tuple[StepRow, ...]
    categories: tuple[CategoryRow, ...]
    transfers: tuple[TransferRow, ...]
    kernels: tuple[KernelRow, ...]
    engaged: EngagedView
    attributed_share: float | None = None  # of kernels with a source line
    outside_kernel_count: int = 0  # kernels in no stage
    operators: OperatorTime | None = None  # where there is no GPU work to show
    step_statistics: StepStatistics | None = None
    dominant_stage: str | None = None
    forwards: tuple[ForwardRow, ...] = ()
    annotations: tuple[AnnotationRow, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()
    busy_over_time: tuple[BusyPoint, ...] = ()
    findings: tuple[Finding, ...] = ()
    call_id: int | None = None  # of the run with the same request, where several runs were read


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer. First line: may it be trusted."""

    schema_version: int
    source: tuple[str, ...]  # the paths it was made from
    trust: Trust
    warnings: tuple[str, ...]
    runs: tuple[RunSummary, ...]
    ranks: tuple[RankReport, ...]
