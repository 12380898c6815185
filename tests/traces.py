"""Traces made by hand: a host thread that calls, launches and waits, and the work it launches.

All times are in microseconds, which read better than nanoseconds. Every ``launch`` makes its own correlation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepscope.model.trace import (
    COPY_KINDS,
    SYNC_KINDS,
    Annotations,
    Copies,
    Counters,
    Device,
    Frames,
    Kernels,
    Launches,
    Operators,
    ReaderWarning,
    SourceLine,
    Syncs,
    Trace,
)
from stepscope.model.vocabulary import TraceSource

H200 = Device(id=0, name="NVIDIA H200", multiprocessors=132, compute_capability="9.0")
Row = dict[str, Any]

_TABLES = {
    "kernels": (Kernels, "name process device stream start_ns duration_ns correlation graph_node grid block "
                "registers shared_bytes occupancy"),
    "copies": (Copies, "name process device stream start_ns duration_ns correlation kind bytes pinned"),
    "launches": (Launches, "name process thread start_ns duration_ns correlation"),
    "operators": (Operators, "name process thread start_ns duration_ns shapes external_id source"),
    "frames": (Frames, "name process thread start_ns duration_ns"),
    "syncs": (Syncs, "name process thread start_ns duration_ns kind"),
    "annotations": (Annotations, "name process thread start_ns duration_ns ours"),
    "counters": (Counters, "name device at_ns value"),
}  # fmt: skip
_TYPES = {"thread": np.int64, "stream": np.int64, "start_ns": np.int64, "duration_ns": np.int64,
          "correlation": np.int64, "graph_node": np.int64, "external_id": np.int64, "bytes": np.int64,
          "at_ns": np.int64, "ours": np.bool_, "occupancy": np.float32, "value": np.float64}  # fmt: skip


@dataclass
class TraceBuilder:
    """Collects rows; ``build`` sorts them and makes the trace."""

    path: str = "made.trace.json"
    source: TraceSource = TraceSource.TORCH_PROFILER
    process: int = 0
    thread: int = 1
    devices: tuple[Device, ...] = (H200,)
    warnings: tuple[ReaderWarning, ...] = ()
    rank: int | None = None
    names: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)
    sources: list[SourceLine] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in _TABLES})
    correlation: int = 0

    def _add(self, table: str, name: str, **values: Any) -> None:
        self.rows[table].append({"name": self.names.setdefault(name, len(self.names)), **values})

    def _host(self, start: float, duration: float, thread: int | None, process: int | None) -> Row:
        return {
            "start_ns": round(start * 1000),
            "duration_ns": round(duration * 1000),
            "thread": self.thread if thread is None else thread,
            "process": self.process if process is None else process,
        }

    def call(
        self, name: str, at: float, duration: float = 2, *, thread: int | None = None,
        process: int | None = None, correlation: int | None = None,
    ) -> int:  # fmt: skip
        """A runtime call; gives its correlation."""
        if correlation is None:
            self.correlation += 1
            correlation = self.correlation
        self._add("launches", name, correlation=correlation, **self._host(at, duration, thread, process))
        if "Synchronize" in name:
            kind = SYNC_KINDS.index("device" if "Device" in name else "stream")
            self._add("syncs", name, kind=kind, **self._host(at, duration, thread, process))
        return correlation

    def kernel(
        self, name: str, start: float, duration: float, correlation: int = -1, *, stream: int = 7,
        device: int = 0, process: int | None = None, grid: tuple[int, int, int] = (1, 1, 1),
    ) -> None:  # fmt: skip
        """GPU work alone; without a correlation its launch was not recorded."""
        self._add(
            "kernels", name, process=self.process if process is None else process, device=device,
            stream=stream, start_ns=round(start * 1000), duration_ns=round(duration * 1000),
            correlation=correlation, graph_node=0, grid=grid, block=(32, 1, 1), registers=32, shared_bytes=0,
            occupancy=float("nan"),
        )  # fmt: skip

    def launch(self, name: str, at: float, start: float, duration: float, **where: Any) -> int:
        """A launch call at ``at`` and its kernel from ``start``."""
        host = {key: where.pop(key) for key in ("thread",) if key in where}
        process = where.get("process")
        correlation = self.call("cudaLaunchKernel", at, process=process, **host)
        self.kernel(name, start, duration, correlation, **where)
        return correlation

    def copy(
        self, kind: str, at: float, start: float, duration: float, *, size: int = 1000,
        pinned: bool | None = None, call_duration: float = 2, stream: int = 7, thread: int | None = None,
        device: int = 0,
    ) -> None:  # fmt: skip
        """A copy and its call. ``kind`` is one of COPY_KINDS, or ``fill``."""
        correlation = self.call("cudaMemcpyAsync", at, call_duration, thread=thread)
        self._add(
            "copies", f"Memcpy {kind}", process=self.process, device=device, stream=stream,
            start_ns=round(start * 1000), duration_ns=round(duration * 1000), correlation=correlation,
            kind=-1 if kind == "fill" else COPY_KINDS.index(kind), bytes=size,
            pinned=-1 if pinned is None else int(pinned),
        )  # fmt: skip

    def operator(
        self, name: str, start: float, duration: float, *, thread: int | None = None,
        shapes: str | None = None, source: SourceLine | None = None,
    ) -> None:  # fmt: skip
        """A CPU operator."""
        if source is not None:
            self.sources.append(source)
        self._add(
            "operators", name, external_id=0, source=-1 if source is None else len(self.sources) - 1,
            shapes=-1 if shapes is None else self.shapes.setdefault(shapes, len(self.shapes)),
            **self._host(start, duration, thread, None),
        )  # fmt: skip

    def frame(self, name: str, start: float, duration: float, *, thread: int | None = None) -> None:
        """A Python frame."""
        self._add("frames", name, **self._host(start, duration, thread, None))

    def annotate(
        self, name: str, start: float, duration: float, *, ours: bool = False, thread: int | None = None,
        process: int | None = None,
    ) -> None:  # fmt: skip
        """A named host range."""
        self._add("annotations", name, ours=ours, **self._host(start, duration, thread, process))

    def allocated(self, at: float, size: int, *, device: int = 0) -> None:
        """A sample of the allocator."""
        self._add("counters", "allocated_bytes", device=device, at_ns=round(at * 1000), value=float(size))

    def build(self) -> Trace:
        """The trace, its tables sorted by start."""
        tables = {name: self._table(name) for name in _TABLES}
        events = sum(len(rows) for rows in self.rows.values())
        return Trace(
            path=self.path, source=self.source, rank=self.rank, world_size=None, base_unix_ns=None,
            names=tuple(self.names), shapes=tuple(self.shapes), sources=tuple(self.sources),
            processes=(100, 101), devices=self.devices, event_count=events,
            has_stacks=bool(self.rows["frames"]), has_shapes=bool(self.shapes), warnings=self.warnings,
            **tables,
        )  # fmt: skip

    def _table(self, name: str) -> Any:
        kind, columns = _TABLES[name]
        rows = sorted(
            self.rows[name],
            key=lambda row: (row.get("start_ns", row.get("at_ns")), -row.get("duration_ns", 0)),
        )
        return kind(**{column: _column(rows, column) for column in columns.split()})


def _column(rows: list[Row], column: str) -> Any:
    values = np.array([row[column] for row in rows], _TYPES.get(column, np.int32))
    return values.reshape(-1, 3) if column in ("grid", "block") else values
