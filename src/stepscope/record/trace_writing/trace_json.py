"""Writes a ``Trace`` as PyTorch Profiler JSON: what makes a Nsight Systems export open in Perfetto.

Of a Nsight recording everything that our readers read is there: kernels with their launch, copies, calls,
ranges. What has no place in the format (schema of the export, other tables) is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.model.trace import Trace
from stepscope.record.atomic import atomic_path
from stepscope.record.trace_writing.trace_slice import write_events
from stepscope.record.trace_writing.trace_spans import (
    HOST_TRACK_NAME,
    TraceSpan,
    span_events,
)
from stepscope.record.trace_writing.trace_window import microseconds

_KEPT_METADATA = ("nsys_version", "graph_mode")


def write_trace_json(trace: Trace, output: Path) -> int:
    """Write ``trace`` to ``output``, gzip where its name ends in .gz; the number of events.

    Raises:
        RunFailedError: ``output`` cannot be written.

    """
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [_device(trace, index) for index in range(len(trace.devices))],
        "traceName": output.name,
        "convertedFrom": Path(trace.path).name,
        **{key: trace.metadata[key] for key in _KEPT_METADATA if key in trace.metadata},
    }
    if trace.base_unix_ns is not None:
        header["baseTimeNanoseconds"] = trace.base_unix_ns
    with atomic_path(output) as temporary:
        return write_events(temporary, header, _events(trace), packed=output.suffix == ".gz")


def _device(trace: Trace, index: int) -> dict[str, Any]:
    device = trace.devices[index]
    known = {
        "id": device.id,
        "name": device.name,
        "totalGlobalMem": device.total_memory_bytes,
        "numSms": device.multiprocessors,
        "regsPerMultiprocessor": device.registers_per_multiprocessor,
        "sharedMemPerMultiprocessor": device.shared_bytes_per_multiprocessor,
        "maxThreadsPerMultiprocessor": device.threads_per_multiprocessor,
    }
    major, _, minor = (device.compute_capability or "").partition(".")
    if major.isdigit() and minor.isdigit():
        known |= {"computeMajor": int(major), "computeMinor": int(minor)}
    return {key: value for key, value in known.items() if value is not None}


def _events(trace: Trace) -> Iterator[bytes]:
    yield from _names(trace)
    yield from _kernels(trace)
    yield from _copies(trace)
    yield from _host(trace, "cuda_runtime", trace.launches, correlation=True)
    yield from _host(trace, "cpu_op", trace.operators)
    yield from _host(trace, "python_function", trace.frames)
    yield from _annotations(trace)


def _names(trace: Trace) -> Iterator[bytes]:
    """Labels of the rows: processes, devices and streams."""
    for pid in trace.processes:
        yield _event("M", "process_name", pid, 0, args={"name": "python"})
        yield _event("M", "process_labels", pid, 0, args={"labels": "CPU"})
        yield _event("M", "process_sort_index", pid, 0, args={"sort_index": 0})
    rows = {(int(device), int(stream)) for device, stream in _device_rows(trace)}
    for device in sorted({device for device, _ in rows}):
        name = next((one.name for one in trace.devices if one.id == device), "")
        yield _event("M", "process_name", device, 0, args={"name": "python"})
        yield _event("M", "process_labels", device, 0, args={"labels": f"GPU {device} {name}".strip()})
        yield _event("M", "process_sort_index", device, 0, args={"sort_index": 5_000_000 + device})
    for device, stream in sorted(rows):
        yield _event("M", "thread_name", device, stream, args={"name": f"stream {stream}"})


def _device_rows(trace: Trace) -> Iterable[tuple[Any, Any]]:
    for table in (trace.kernels, trace.copies):
        yield from set(zip(table.device.tolist(), table.stream.tolist(), strict=True))


def _kernels(trace: Trace) -> Iterator[bytes]:
    table = trace.kernels
    for row in range(len(table.start_ns)):
        arguments: dict[str, Any] = {
            "device": int(table.device[row]),
            "stream": int(table.stream[row]),
            "correlation": int(table.correlation[row]),
            "registers per thread": int(table.registers[row]),
            "shared memory": int(table.shared_bytes[row]),
            "grid": table.grid[row].tolist(),
            "block": table.block[row].tolist(),
            "graph node id": int(table.graph_node[row]),
        }
        if not np.isnan(table.occupancy[row]):
            arguments["est. achieved occupancy %"] = round(100 * float(table.occupancy[row]))
        yield _slice(trace, "kernel", table, row, _stream(table, row), **arguments)


def _copies(trace: Trace) -> Iterator[bytes]:
    table = trace.copies
    for row in range(len(table.start_ns)):
        kind = int(table.kind[row])
        arguments = {
            "device": int(table.device[row]),
            "stream": int(table.stream[row]),
            "correlation": int(table.correlation[row]),
            "bytes": int(table.bytes[row]),
        }
        category = "gpu_memset" if kind < 0 else "gpu_memcpy"
        yield _slice(trace, category, table, row, _stream(table, row), **arguments)


def _host(trace: Trace, category: str, table: Any, *, correlation: bool = False) -> Iterator[bytes]:
    for row in range(len(table.start_ns)):
        arguments = {"correlation": int(table.correlation[row])} if correlation else {}
        pid = trace.processes[int(table.process[row])]
        yield _slice(trace, category, table, row, (pid, int(table.thread[row])), **arguments)


def _annotations(trace: Trace) -> Iterator[bytes]:
    """Ranges of others on their thread; ours on tracks of their own, as in our own traces."""
    table = trace.annotations
    ours: dict[int, list[TraceSpan]] = {}
    for row in range(len(table.start_ns)):
        pid, thread = trace.processes[int(table.process[row])], int(table.thread[row])
        if not table.ours[row]:
            yield _slice(trace, "user_annotation", table, row, (pid, thread))
            continue
        start = int(table.start_ns[row])
        ours.setdefault(pid, []).append(
            TraceSpan(
                name=trace.names[int(table.name[row])],
                start_ns=start,
                end_ns=start + int(table.duration_ns[row]),
                thread=thread,
            )
        )
    for pid, spans in ours.items():
        yield from span_events(spans, process=pid, category="user_annotation", track_name=HOST_TRACK_NAME)


def _stream(table: Any, row: int) -> tuple[int, int]:
    """The row that device work is shown on."""
    return int(table.device[row]), int(table.stream[row])


def _slice(
    trace: Trace, category: str, table: Any, row: int, place: tuple[int, int], **arguments: Any
) -> bytes:
    return msgspec.json.encode(
        {
            "ph": "X",
            "cat": category,
            "name": trace.names[int(table.name[row])],
            "pid": place[0],
            "tid": place[1],
            "ts": microseconds(int(table.start_ns[row])),
            "dur": microseconds(max(0, int(table.duration_ns[row]))),
            "args": arguments,
        }
    )


def _event(phase: str, name: str, pid: int, tid: int, *, args: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"ph": phase, "name": name, "ts": 0, "pid": pid, "tid": tid, "args": args})
