"""Columns of a trace as the fewest bytes that every viewer of Kineto traces still reads.

Times count from the window's start; an argument is written only where a viewer or a reader uses it; an arrow
from a launch to its work is a pair of keys on the two slices instead of two more events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.model.source_map import MappedCalls
from stepscope.model.trace import Copies, Kernels, Launches, Operators, SourceLine, Trace

ROWS_AT_A_TIME = 8192
_DRIVER_CALL = re.compile(r"cu[A-Z]")
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origins:
    """What made each piece of work, as the text of its arguments, ready to be put into events."""

    texts: tuple[str, ...]  # begins with a comma, or is empty
    of_call: Rows  # index into texts by row of the launches; of the operators where nothing was launched

    @staticmethod
    def none(trace: Trace) -> Origins:
        """Nothing is known."""
        table = trace.launches if len(trace.launches.start_ns) else trace.operators
        return Origins(texts=("",), of_call=np.zeros(len(table.start_ns), np.int64))

    @staticmethod
    def of(mapped: MappedCalls) -> Origins:
        """The arguments of mapped launches; equal ones share their text."""
        table = np.stack((mapped.operator, mapped.source, mapped.shapes, mapped.continues), axis=1)
        distinct, index = np.unique(table, axis=0, return_inverse=True)
        texts = tuple(_origin_text(mapped, *map(int, row)) for row in distinct)
        return Origins(texts=texts, of_call=index.reshape(-1).astype(np.int64))


def _origin_text(mapped: MappedCalls, operator: int, source: int, shapes: int, continues: int) -> str:
    fields: dict[str, Any] = {}
    if operator >= 0:
        fields["operator"] = mapped.operators[operator]
    if source >= 0:
        fields |= source_fields(mapped.sources[source])
    if shapes >= 0:
        fields["shapes"] = shapes
    if continues:
        fields["continues"] = True
    return "," + _json(fields)[1:-1] if fields else ""


def source_fields(line: SourceLine) -> dict[str, Any]:
    """A place in source as arguments of a slice."""
    fields: dict[str, Any] = {} if line.module_path is None else {"module": line.module_path}
    fields["source"] = f"{line.file}:{line.line} {line.function}"
    return fields if line.line_exact else fields | {"exact": False}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeanTrace:
    """What all events are made from: a recording, the moment that becomes zero, and what made its calls."""

    trace: Trace
    start_ns: int
    origins: Origins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceWork:
    """Kernels, or copies and fills, that are written. ``launch`` and ``lane`` have an entry for every row."""

    rows: Rows
    launch: Rows  # row of the call, -1 unknown
    lane: Rows  # added to the stream's number


def launch_events(lean: LeanTrace, rows: Rows, bound: Rows) -> Iterator[bytes]:
    """Calls; those whose row is in ``bound`` launched something that is in the file."""
    launches, texts = lean.trace.launches, lean.origins.texts
    heads = [_head(_call_category(name), name) for name in lean.trace.names]
    has_work = np.zeros(len(launches.start_ns), np.bool_)
    has_work[bound] = True
    for chunk in _chunks(rows):
        for place, correlation, is_bound, origin in zip(
            _host_places(lean, launches, chunk, heads), launches.correlation[chunk].tolist(),
            has_work[chunk].tolist(), lean.origins.of_call[chunk].tolist(), strict=True,
        ):  # fmt: skip
            if is_bound:
                flow = f'"bind_id":{correlation},"flow_out":true'
                yield f'{place},{flow},"args":{{"correlation":{correlation}}}}}'.encode()
            else:
                yield f'{place},"args":{{"correlation":{correlation}{texts[origin]}}}}}'.encode()


def operator_events(lean: LeanTrace, rows: Rows) -> Iterator[bytes]:
    """Operators, where they are the work itself: on a CPU."""
    operators, texts = lean.trace.operators, lean.origins.texts
    heads = [_head("cpu_op", name) for name in lean.trace.names]
    for chunk in _chunks(rows):
        for place, origin in zip(
            _host_places(lean, operators, chunk, heads), lean.origins.of_call[chunk].tolist(), strict=True
        ):
            yield f'{place},"args":{{{texts[origin][1:]}}}}}'.encode()


def kernel_events(lean: LeanTrace, work: DeviceWork) -> Iterator[bytes]:
    """Kernels, with what launched each."""
    kernels = lean.trace.kernels
    heads = [_head("kernel", name) for name in lean.trace.names]
    for chunk in _chunks(work.rows):
        for grid, block, registers, shared, node, (head, tail) in zip(
            kernels.grid[chunk].tolist(), kernels.block[chunk].tolist(), kernels.registers[chunk].tolist(),
            kernels.shared_bytes[chunk].tolist(), kernels.graph_node[chunk].tolist(),
            _device_places(lean, kernels, work, chunk, heads), strict=True,
        ):  # fmt: skip
            graph = f',"graph node id":{node}' if node > 0 else ""
            size = f'"grid":{_triple(grid)},"block":{_triple(block)}'
            use = f'"registers per thread":{registers},"shared memory":{shared}'
            yield f"{head}{size},{use}{graph}{tail}".encode()


def copy_events(lean: LeanTrace, work: DeviceWork) -> Iterator[bytes]:
    """Copies and fills, as ``kernel_events``."""
    copies = lean.trace.copies
    is_copy = copies.kind[work.rows] >= 0
    for category, chosen in (("gpu_memcpy", is_copy), ("gpu_memset", ~is_copy)):
        heads = [_head(category, name) for name in lean.trace.names]
        for chunk in _chunks(work.rows[chosen]):
            for size, (head, tail) in zip(
                copies.bytes[chunk].tolist(), _device_places(lean, copies, work, chunk, heads), strict=True
            ):
                yield f'{head}"bytes":{size}{tail}'.encode()


def _host_places(
    lean: LeanTrace, table: Launches | Operators, chunk: Rows, heads: Sequence[str]
) -> Iterator[str]:
    """The beginning of each event of a thread, up to its arguments."""
    process = np.array(lean.trace.processes, np.int64)[table.process[chunk]]
    for name, pid, tid, at, lasting in zip(
        table.name[chunk].tolist(), process.tolist(), table.thread[chunk].tolist(),
        (table.start_ns[chunk] - lean.start_ns).tolist(), table.duration_ns[chunk].tolist(), strict=True,
    ):  # fmt: skip
        yield f'{heads[name]},"pid":{pid},"tid":{tid},"ts":{_us(at)},"dur":{_us(lasting)}'


def _device_places(
    lean: LeanTrace, table: Kernels | Copies, work: DeviceWork, chunk: Rows, heads: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The beginning of each event of a device, up to and into its arguments, and its end."""
    called, of_call = work.launch[chunk], lean.origins.of_call
    known = called >= 0
    origin = np.where(known, of_call[np.maximum(called, 0)], -1) if len(of_call) else called
    for name, device, stream, at, lasting, correlation, is_bound, text, lane in zip(
        table.name[chunk].tolist(), table.device[chunk].tolist(), table.stream[chunk].tolist(),
        (table.start_ns[chunk] - lean.start_ns).tolist(), table.duration_ns[chunk].tolist(),
        table.correlation[chunk].tolist(), known.tolist(), origin.tolist(), work.lane[chunk].tolist(),
        strict=True,
    ):  # fmt: skip
        flow = f',"bind_id":{correlation},"flow_in":true' if is_bound else ""
        own_stream = f'"stream":{stream},' if lane else ""
        yield (
            f'{heads[name]},"pid":{device},"tid":{stream + lane},"ts":{_us(at)},"dur":{_us(lasting)}{flow}'
            f',"args":{{{own_stream}"correlation":{correlation},',
            (lean.origins.texts[text] if text >= 0 else "") + "}}",
        )


def _chunks(rows: Rows) -> Iterator[Rows]:
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        yield rows[first : first + ROWS_AT_A_TIME]


def _call_category(name: str) -> str:
    return "cuda_driver" if _DRIVER_CALL.match(name) else "cuda_runtime"


def _head(category: str, name: str) -> str:
    return f'{{"ph":"X","cat":"{category}","name":{_json(name)}'


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _triple(values: Sequence[int]) -> str:
    return f"[{values[0]},{values[1]},{values[2]}]"


def _us(time_ns: int) -> str:
    """Integer ns as microseconds, with no more digits than it has."""
    whole, rest = divmod(time_ns, 1000)
    if not rest:
        return str(whole)
    if whole < 0:
        whole, rest, sign = -whole - 1, 1000 - rest, "-"
    else:
        sign = ""
    return f"{sign}{whole}.{rest:03d}".rstrip("0")
