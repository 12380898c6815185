"""A trace as columns: kernels, copies, launches, operators, frames, the same whoever recorded it.

Every column of one table has the same length; times are int64 nanoseconds on the trace's own clock
(``Trace.base_unix_ns`` + time = unix time). Names are indices into ``Trace.names``. A value that the
recording does not have is -1. Tables are sorted by start time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.model.vocabulary import TraceSource

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """GPU kernels."""

    name: I32
    process: I32  # index into Trace.processes
    device: I32
    stream: I64
    start_ns: I64
    duration_ns: I64
    correlation: I64  # unique only within its process; joins with Launches
    graph_node: I64  # 0: not part of a CUDA graph
    grid: I32  # (n, 3)
    block: I32  # (n, 3)
    registers: I32
    shared_bytes: I32
    occupancy: F32  # 0 to 1, as estimated by the recorder; NaN unknown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Copies:
    """Copies and fills on the device (a fill has kind OTHER and its own name)."""

    name: I32
    process: I32
    device: I32
    stream: I64
    start_ns: I64
    duration_ns: I64
    correlation: I64
    kind: I32  # index into trace.COPY_KINDS; -1 for a fill (memset)
    bytes: I64
    pinned: I32  # 1 pinned, 0 pageable, -1 unknown or not host memory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launches:
    """Runtime and driver calls that carry a correlation (launches, copies, and others)."""

    name: I32
    process: I32
    thread: I64
    start_ns: I64
    duration_ns: I64
    correlation: I64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operators:
    """CPU operators (aten and friends)."""

    name: I32
    process: I32
    thread: I64
    start_ns: I64
    duration_ns: I64
    shapes: I32  # index into Trace.shapes, -1 none recorded
    external_id: I64  # the recorder's own id of the operator, 0 none
    source: I32  # index into Trace.sources, -1 none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frames:
    """Python frames, as ``file(line): function`` in ``name``."""

    name: I32
    process: I32
    thread: I64
    start_ns: I64
    duration_ns: I64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Syncs:
    """Host calls that wait for the device."""

    name: I32
    process: I32
    thread: I64
    start_ns: I64
    duration_ns: I64
    kind: I32  # index into trace.SYNC_KINDS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Annotations:
    """Named host ranges: record_function, NVTX, and our own stage and step spans."""

    name: I32
    process: I32
    thread: I64  # the thread whose launches the range holds
    start_ns: I64
    duration_ns: I64
    ours: NDArray[np.bool_]  # written by stepscope: authoritative for stages, steps and forwards


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counters:
    """Samples over time: allocated bytes, clocks, power."""

    name: I32
    device: I32
    at_ns: I64
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as the trace describes it."""

    id: int
    name: str
    total_memory_bytes: int | None = None
    multiprocessors: int | None = None
    compute_capability: str | None = None
    registers_per_multiprocessor: int | None = None
    shared_bytes_per_multiprocessor: int | None = None
    threads_per_multiprocessor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A place in Python source. ``line_exact``: the calling line is known, not only the definition's."""

    file: str
    line: int
    function: str
    line_exact: bool
    module_path: str | None = None  # nn.Module path inside the pipeline, e.g. transformer.blocks.3.attn


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderWarning:
    """Something in a file that was skipped, mended or missing."""

    kind: str  # stable id: malformed_event, truncated, negative_duration, duplicate_key, graph_mode, ...
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Everything read from one trace file."""

    path: str
    source: TraceSource
    rank: int | None
    world_size: int | None
    base_unix_ns: int | None  # None: the file does not tie its clock to the wall clock
    names: tuple[str, ...]
    shapes: tuple[str, ...]  # operator input shapes and dtypes as JSON text
    sources: tuple[SourceLine, ...]
    processes: tuple[int, ...]  # pid of each process index
    devices: tuple[Device, ...]
    kernels: Kernels
    copies: Copies
    launches: Launches
    operators: Operators
    frames: Frames
    syncs: Syncs
    annotations: Annotations
    counters: Counters
    event_count: int  # events in the file, of any kind
    has_stacks: bool = False
    has_shapes: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)  # the recorder's header, environment removed
    warnings: tuple[ReaderWarning, ...] = ()


COPY_KINDS = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "other")
"""``Copies.kind`` indexes this; the values are those of ``CopyKind``."""

SYNC_KINDS = ("device", "stream", "event", "stream_wait", "other")
"""``Syncs.kind`` indexes this; the values are those of ``SyncKind``."""
