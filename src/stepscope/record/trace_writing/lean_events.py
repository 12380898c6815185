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
from stepscope.model.trace import I64, Copies, Kernels, SourceLine, Trace

ROWS_AT_A_TIME = 8192
_DRIVER_CALL = re.compile(r"cu[A-Z]")
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origins:
    """What made each piece of work, as the text of its arguments, ready to be put into events."""

    texts: tuple[str, ...]  # begins with a comma, or is empty
    of_call: I64  # index into texts, by row of Trace.launches; of Trace.operators where nothing was launched

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


def launch_events(trace: Trace, rows: Rows, start_ns: int, origins: Origins, bound: Rows) -> Iterator[bytes]:
    """Calls; those whose row is in ``bound`` launched something that is in the file."""
    launches = trace.launches
    heads = [_launch_head(name) for name in trace.names]
    process = np.array(trace.processes, np.int64)[launches.process]
    has_work = np.zeros(len(launches.start_ns), np.bool_)
    has_work[bound] = True
    for chunk in _chunks(rows):
        for name, pid, tid, at, lasting, correlation, is_bound, origin in zip(
            launches.name[chunk].tolist(), process[chunk].tolist(), launches.thread[chunk].tolist(),
            (launches.start_ns[chunk] - start_ns).tolist(), launches.duration_ns[chunk].tolist(),
            launches.correlation[chunk].tolist(), has_work[chunk].tolist(),
            origins.of_call[chunk].tolist(), strict=True,
        ):  # fmt: skip
            place = f'{heads[name]},"pid":{pid},"tid":{tid},"ts":{_us(at)},"dur":{_us(lasting)}'
            if is_bound:
                yield (
                    f'{place},"bind_id":{correlation},"flow_out":true,"args":{{"correlation":{correlation}}}}}'
                ).encode()
            else:
                yield f'{place},"args":{{"correlation":{correlation}{origins.texts[origin]}}}}}'.encode()


def kernel_events(
    trace: Trace, rows: Rows, start_ns: int, origins: Origins, launch: I64, lane: I64
) -> Iterator[bytes]:
    """Kernels, with what launched each. ``launch``: row of each kernel's call, -1 unknown."""
    kernels = trace.kernels
    heads = [f'{{"ph":"X","cat":"kernel","name":{_json(name)}' for name in trace.names]
    for chunk in _chunks(rows):
        for grid, block, registers, shared, node, place in zip(
            kernels.grid[chunk].tolist(), kernels.block[chunk].tolist(), kernels.registers[chunk].tolist(),
            kernels.shared_bytes[chunk].tolist(), kernels.graph_node[chunk].tolist(),
            _places(kernels, chunk, start_ns, origins, launch, lane, heads), strict=True,
        ):  # fmt: skip
            graph = f',"graph node id":{node}' if node > 0 else ""
            sizes = f'"grid":{_triple(grid)},"block":{_triple(block)}'
            yield (
                f'{place[0]}{sizes},"registers per thread":{registers},"shared memory":{shared}{graph}{place[1]}'
            ).encode()


def operator_events(trace: Trace, rows: Rows, start_ns: int, origins: Origins) -> Iterator[bytes]:
    """Operators, where they are the work itself: on a CPU."""
    operators = trace.operators
    heads = [f'{{"ph":"X","cat":"cpu_op","name":{_json(name)}' for name in trace.names]
    process = np.array(trace.processes, np.int64)[operators.process]
    for chunk in _chunks(rows):
        for name, pid, tid, at, lasting, origin in zip(
            operators.name[chunk].tolist(), process[chunk].tolist(), operators.thread[chunk].tolist(),
            (operators.start_ns[chunk] - start_ns).tolist(), operators.duration_ns[chunk].tolist(),
            origins.of_call[chunk].tolist(), strict=True,
        ):  # fmt: skip
            arguments = origins.texts[origin][1:]
            yield (
                f'{heads[name]},"pid":{pid},"tid":{tid},"ts":{_us(at)},"dur":{_us(lasting)}'
                f',"args":{{{arguments}}}}}'
            ).encode()


def copy_events(
    trace: Trace, rows: Rows, start_ns: int, origins: Origins, launch: I64, lane: I64
) -> Iterator[bytes]:
    """Copies and fills, as ``kernel_events``."""
    copies = trace.copies
    for category, chosen in (("gpu_memcpy", copies.kind[rows] >= 0), ("gpu_memset", copies.kind[rows] < 0)):
        heads = [f'{{"ph":"X","cat":"{category}","name":{_json(name)}' for name in trace.names]
        for chunk in _chunks(rows[chosen]):
            for size, place in zip(
                copies.bytes[chunk].tolist(),
                _places(copies, chunk, start_ns, origins, launch, lane, heads),
                strict=True,
            ):
                yield f'{place[0]}"bytes":{size}{place[1]}'.encode()


def _places(
    table: Kernels | Copies, chunk: Rows, start_ns: int, origins: Origins, launch: I64, lane: I64,
    heads: Sequence[str],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """The beginning of each event, up to and into its arguments, and its end."""
    called = launch[chunk]
    origin = np.where(called >= 0, origins.of_call[np.maximum(called, 0)], -1) if len(called) else called
    for name, device, stream, at, lasting, correlation, call, text, extra in zip(
        table.name[chunk].tolist(), table.device[chunk].tolist(), table.stream[chunk].tolist(),
        (table.start_ns[chunk] - start_ns).tolist(), table.duration_ns[chunk].tolist(),
        table.correlation[chunk].tolist(), called.tolist(), origin.tolist(), lane[chunk].tolist(),
        strict=True,
    ):  # fmt: skip
        flow = f',"bind_id":{correlation},"flow_in":true' if call >= 0 else ""
        own_stream = f'"stream":{stream},' if extra else ""
        yield (
            f'{heads[name]},"pid":{device},"tid":{stream + extra},"ts":{_us(at)},"dur":{_us(lasting)}{flow}'
            f',"args":{{{own_stream}"correlation":{correlation},',
            (origins.texts[text] if text >= 0 else "") + "}}",
        )


def _chunks(rows: Rows) -> Iterator[Rows]:
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        yield rows[first : first + ROWS_AT_A_TIME]


def _launch_head(name: str) -> str:
    category = "cuda_driver" if _DRIVER_CALL.match(name) else "cuda_runtime"
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
