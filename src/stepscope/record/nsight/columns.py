"""Turns the tables of a Nsight Systems export into the columns of a ``Trace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.record.call_names import CALL_VERSION, copy_name, fill_name, nsight_copy_kind
from stepscope.record.nsight.about import device_map
from stepscope.record.nsight.nvtx import NvtxRanges, nvtx_ranges, operator_name
from stepscope.record.nsight.tables import NsightTables, is_usable_time
from stepscope.record.reader_warnings import WarningLog
from stepscope.record.trace_tables import (
    ANNOTATION_COLUMNS,
    COPY_COLUMNS,
    COUNTER_COLUMNS,
    FRAME_COLUMNS,
    KERNEL_COLUMNS,
    LAUNCH_COLUMNS,
    OPERATOR_COLUMNS,
    Column,
    Interner,
    TableParts,
    int_column,
    text_indices,
)

I64 = NDArray[np.int64]
Rows = dict[str, I64]
_GPU = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_KERNEL = (
    *_GPU, "demangledName", "shortName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY",
    "blockZ", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId",
)  # fmt: skip
_THREAD_BITS = 24
_ID_MASK = (1 << _THREAD_BITS) - 1
_PINNED = {0: 0, 1: 1}  # ENUM_CUDA_MEM_KIND: pageable, pinned


class NsightColumns:
    """All tables of one export, read at construction."""

    def __init__(self, tables: NsightTables, log: WarningLog) -> None:
        self.names = Interner()
        self.kernels = TableParts(KERNEL_COLUMNS)
        self.copies = TableParts(COPY_COLUMNS)
        self.launches = TableParts(LAUNCH_COLUMNS)
        self.operators = TableParts(OPERATOR_COLUMNS)
        self.frames = TableParts(FRAME_COLUMNS)
        self.annotations = TableParts(ANNOTATION_COLUMNS)
        self.counters = TableParts(COUNTER_COLUMNS)
        self._tables = tables
        self._log = log
        self._strings = tables.strings()
        self._processes: dict[int, int] = {}
        self._devices = device_map(tables)
        self._last_ns = 0
        self._add_kernels()
        self.graph_count = self._add_graphs()
        self._add_copies()
        self._add_fills()
        self._add_launches()
        self.launch_count = len(self.launches)
        self._add_ranges()
        tables_read = (self.kernels, self.copies, self.launches, self.operators, self.annotations)
        self.event_count = sum(len(table) for table in tables_read)

    def pids(self) -> tuple[int, ...]:
        """The pid of each process index."""
        return tuple((key >> _THREAD_BITS) & _ID_MASK for key in self._processes) or (-1,)

    def _add_kernels(self) -> None:
        rows = self._rows("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, {"graphNodeId": 0})
        ids = np.where(rows["demangledName"] >= 0, rows["demangledName"], rows["shortName"])
        shared = np.maximum(rows["staticSharedMemory"], 0) + np.maximum(rows["dynamicSharedMemory"], 0)
        unknown = (rows["staticSharedMemory"] < 0) & (rows["dynamicSharedMemory"] < 0)
        self.kernels.add(
            **self._gpu(rows, self._named(ids)),
            graph_node=rows["graphNodeId"],
            grid=_triples(rows, "grid"),
            block=_triples(rows, "block"),
            registers=_i32(rows["registersPerThread"]),
            shared_bytes=_i32(np.where(unknown, -1, shared)),
            occupancy=np.full(len(ids), np.nan, np.float32),
        )

    def _add_graphs(self) -> int:
        """Whole-graph rows count as kernels, so that busy time is right; their names say what they are."""
        rows = self._rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_GPU, "graphId"))
        count = len(rows["start"])
        unknown = np.full(count, -1, np.int32)
        self.kernels.add(
            **self._gpu(
                rows, text_indices(self.names, (f"CUDA graph {key}" for key in rows["graphId"].tolist()))
            ),
            graph_node=np.zeros(count, np.int64),
            grid=np.full((count, 3), -1, np.int32),
            block=np.full((count, 3), -1, np.int32),
            registers=unknown,
            shared_bytes=unknown,
            occupancy=np.full(count, np.nan, np.float32),
        )
        return count

    def _add_copies(self) -> None:
        rows = self._rows("CUPTI_ACTIVITY_KIND_MEMCPY", (*_GPU, "bytes", "copyKind", "srcKind", "dstKind"))
        described = list(
            zip(*(rows[key].tolist() for key in ("copyKind", "srcKind", "dstKind")), strict=True)
        )
        names = {triple: copy_name(*triple) for triple in set(described)}
        self.copies.add(
            **self._gpu(rows, text_indices(self.names, (names[triple] for triple in described))),
            kind=int_column([nsight_copy_kind(code) for code, _, _ in described], np.int32),
            bytes=rows["bytes"],
            pinned=int_column(
                [_pinned(source, destination) for _, source, destination in described], np.int32
            ),
        )

    def _add_fills(self) -> None:
        rows = self._rows("CUPTI_ACTIVITY_KIND_MEMSET", (*_GPU, "bytes", "memKind"))
        unknown = np.full(len(rows["start"]), -1, np.int32)
        self.copies.add(
            **self._gpu(
                rows, text_indices(self.names, (fill_name(kind) for kind in rows["memKind"].tolist()))
            ),
            kind=unknown,
            bytes=rows["bytes"],
            pinned=unknown,
        )

    def _add_launches(self) -> None:
        columns = ("start", "end", "globalTid", "correlationId", "nameId")
        rows = self._rows("CUPTI_ACTIVITY_KIND_RUNTIME", columns)
        self.launches.add(**self._host(rows, self._named(rows["nameId"])), correlation=rows["correlationId"])

    def _add_ranges(self) -> None:
        ranges = nvtx_ranges(self._tables, self._strings, self._last_ns, self._log)
        operators = [operator_name(text) for text in ranges.texts]
        is_operator = np.array([bool(name) for name in operators], np.bool_)
        chosen = ranges.chosen(~is_operator)
        self.annotations.add(
            **self._host(_as_rows(chosen), text_indices(self.names, chosen.texts)), ours=chosen.ours
        )
        count = int(is_operator.sum())
        names = text_indices(self.names, (name for name in operators if name))
        self.operators.add(
            **self._host(_as_rows(ranges.chosen(is_operator)), names),
            shapes=np.full(count, -1, np.int32),
            external_id=np.zeros(count, np.int64),
            source=np.full(count, -1, np.int32),
        )

    def _rows(self, table: str, columns: Sequence[str], missing: Mapping[str, int] | None = None) -> Rows:
        """The rows of a table whose times can be computed with."""
        rows = self._tables.integers(table, columns, missing)
        good = is_usable_time(rows["start"]) & is_usable_time(rows["end"])
        if good.all():
            return rows
        self._log.add("time_out_of_range", "events with an impossible time were skipped", int((~good).sum()))
        return {column: values[good] for column, values in rows.items()}

    def _gpu(self, rows: Rows, names: NDArray[np.int32]) -> dict[str, Column]:
        return {
            "name": names,
            "process": self._process(rows["globalPid"]),
            "device": self._device(rows["globalPid"], rows["deviceId"]),
            "stream": rows["streamId"],
            "correlation": rows["correlationId"],
            **self._times(rows),
        }

    def _host(self, rows: Rows, names: NDArray[np.int32]) -> dict[str, Column]:
        return {
            "name": names,
            "process": self._process(rows["globalTid"] & ~_ID_MASK),
            "thread": rows["globalTid"] & _ID_MASK,
            **self._times(rows),
        }

    def _times(self, rows: Rows) -> dict[str, Column]:
        """Start and duration; a row that ends before it starts takes no time and is noted."""
        length = rows["end"] - rows["start"]
        text = "events with a negative duration count as taking no time"
        self._log.add("negative_duration", text, int((length < 0).sum()))
        self._last_ns = max(self._last_ns, int(rows["end"].max(initial=0)))
        return {"start_ns": rows["start"], "duration_ns": np.maximum(length, 0)}

    def _process(self, keys: I64) -> NDArray[np.int32]:
        """Index of each process; the key is the export's globalPid, unique over machines too."""
        unique, inverse = np.unique(keys, return_inverse=True)
        index = [self._processes.setdefault(key, len(self._processes)) for key in unique.tolist()]
        return np.array(index, np.int32)[inverse] if index else np.empty(0, np.int32)

    def _device(self, process: I64, device: I64) -> NDArray[np.int32]:
        mapped = device.copy()
        for (pid, ordinal), gpu in self._devices.items():
            mapped[(((process >> _THREAD_BITS) & _ID_MASK) == pid) & (device == ordinal)] = gpu
        return _i32(mapped)

    def _named(self, ids: I64) -> NDArray[np.int32]:
        unique, inverse = np.unique(ids, return_inverse=True)
        texts = (CALL_VERSION.sub("", self._strings.get(key, "")) for key in unique.tolist())
        index = text_indices(self.names, texts)
        return index[inverse] if len(index) else np.empty(0, np.int32)


def _as_rows(ranges: NvtxRanges) -> Rows:
    return {"start": ranges.start_ns, "end": ranges.end_ns, "globalTid": ranges.global_thread}


def _triples(rows: Rows, prefix: str) -> NDArray[np.int32]:
    return np.stack([_i32(rows[prefix + axis]) for axis in "XYZ"], axis=1)


def _i32(values: I64) -> NDArray[np.int32]:
    """Narrowed; what does not fit, and no recorder means, becomes -1."""
    limits = np.iinfo(np.int32)
    return np.where((values >= limits.min) & (values <= limits.max), values, -1).astype(np.int32)


def _pinned(source: int, destination: int) -> int:
    """Whether the host side of a copy is pinned; -1 if neither side is host memory."""
    return _PINNED.get(source, _PINNED.get(destination, -1))
