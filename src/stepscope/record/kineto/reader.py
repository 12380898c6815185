"""Reads PyTorch Profiler (Kineto) traces into a ``Trace``, streaming: memory is that of the columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepscope.model.errors import UnreadableInputError
from stepscope.model.trace import Annotations, Copies, Counters, Frames, Kernels, Launches, Operators, Trace
from stepscope.model.vocabulary import TraceSource
from stepscope.record.byte_stream import ByteStream
from stepscope.record.kineto.columns import KinetoColumns
from stepscope.record.kineto.header import KinetoHeader, parse_header
from stepscope.record.kineto.origins import LEAN_OPERATORS, shape_indices
from stepscope.record.kineto.stream import KinetoStream
from stepscope.record.reader_warnings import WarningLog
from stepscope.record.trace_parts import note_overlaps, rank_in_name, waiting_calls
from stepscope.record.trace_tables import TableParts

_SGLANG_PREFIXES = ("STAGE ",)
_SGLANG_PROCESS = "sgl_diffusion"
_VLLM_OMNI_NAMES = frozenset({"pipeline_forward", "diffusion_forward", "diffusion_step"})
_VLLM_OMNI_PROCESS = "vLLM-Omni"
_UNIX_TIMES_FROM_NS = 10**18  # 2001: no relative time reaches it


def read_kineto(path: Path) -> Trace:
    """Read a Kineto trace, plain, gzip or zstd; what is malformed or cut is skipped and told in ``warnings``.

    Raises:
        UnreadableInputError: the file cannot be opened, or there is no event to be read in it.

    """
    log = WarningLog()
    blocks = ByteStream(path)
    stream = KinetoStream(blocks, log)
    columns = KinetoColumns(log)
    for events in stream:
        columns.add(events)
    if blocks.damage:
        log.add("damaged_compression", f"the compressed file is cut or damaged: {blocks.damage}")
    if not columns.event_count:
        raise _no_events(path, stream, blocks.damage, log)
    header = parse_header(stream.header, stream.tail, log)
    return _assemble(path, columns, header, log)


def _assemble(path: Path, columns: KinetoColumns, header: KinetoHeader, log: WarningLog) -> Trace:
    is_lean = columns.origins.add_operators(columns.launches, columns.operators)
    processes = _resolve_processes(columns)
    names = columns.names.texts()
    kernels, copies = columns.kernels.build(Kernels), columns.copies.build(Copies)
    launches, annotations = columns.launches.build(Launches), columns.annotations.build(Annotations)
    frames, operators = columns.frames.build(Frames), columns.operators.build(Operators)
    if columns.origins.sources:
        ours = header.kept.get("stepscope")
        table = ours.pop("shapes", None) if isinstance(ours, dict) else None
        operators = replace(operators, shapes=shape_indices(operators.shapes, table, columns.shapes))
    note_overlaps(kernels, copies, log)
    rank = rank_in_name(path) if header.rank is None else header.rank
    return Trace(
        path=str(path),
        source=_source(annotations, names, columns.process_labels),
        rank=rank,
        world_size=header.world_size,
        base_unix_ns=_base(header, kernels, operators, launches),
        names=names,
        shapes=columns.shapes.texts(),
        sources=tuple(columns.origins.sources),
        processes=processes,
        devices=header.devices,
        kernels=kernels,
        copies=copies,
        launches=launches,
        operators=operators,
        frames=frames,
        syncs=waiting_calls(launches, names),
        annotations=annotations,
        counters=columns.counters.build(Counters),
        event_count=columns.event_count,
        has_stacks=len(frames.name) > 0,
        has_shapes=bool((operators.shapes >= 0).any()),
        metadata=header.kept | ({LEAN_OPERATORS: True} if is_lean else {}),
        warnings=log.warnings(),
    )


def _resolve_processes(columns: KinetoColumns) -> tuple[int, ...]:
    """Turn pids into indices, in place; GPU work gets the process of the launch with its correlation."""
    host = (columns.launches, columns.operators, columns.frames, columns.annotations)
    pids = _unique([part["process"] for table in host for part in table.parts])
    if not len(pids):
        pids = np.array([-1], np.int64)
    for table in host:
        _to_index(table, pids)
    launches = columns.launches.parts
    correlation, first = np.unique(
        np.concatenate([part["correlation"] for part in launches] or [_NONE]), return_index=True
    )
    owner = np.concatenate([part["process"] for part in launches] or [_NONE])[first]
    fallback = int(np.bincount(owner).argmax()) if len(owner) else 0
    for table in (columns.kernels, columns.copies):
        for part in table.parts:
            part["process"] = _owner(part["correlation"], correlation, owner, fallback)
    return tuple(int(pid) for pid in pids)


_NONE: NDArray[np.int64] = np.empty(0, np.int64)


def _unique(columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.unique(np.concatenate([np.unique(column) for column in columns] or [_NONE]))


def _to_index(table: TableParts, pids: NDArray[np.int64]) -> None:
    for part in table.parts:
        part["process"] = np.searchsorted(pids, part["process"]).astype(np.int32)


def _owner(
    wanted: NDArray[np.int64], correlation: NDArray[np.int64], owner: NDArray[np.int32], fallback: int
) -> NDArray[np.int32]:
    if not len(correlation):
        return np.full(len(wanted), fallback, np.int32)
    place = np.minimum(np.searchsorted(correlation, wanted), len(correlation) - 1)
    return np.where(correlation[place] == wanted, owner[place], fallback).astype(np.int32)


def _source(annotations: Annotations, names: tuple[str, ...], processes: set[str]) -> TraceSource:
    """Who recorded the trace, told from its annotations and the names of its processes."""
    if annotations.ours.any():
        return TraceSource.STEPSCOPE
    seen = {names[index] for index in np.unique(annotations.name).tolist()}
    if any(label.startswith(_SGLANG_PROCESS) for label in processes) or any(
        name.startswith(_SGLANG_PREFIXES) for name in seen
    ):
        return TraceSource.SGLANG
    if any(label.startswith(_VLLM_OMNI_PROCESS) for label in processes) or seen & _VLLM_OMNI_NAMES:
        return TraceSource.VLLM_OMNI
    return TraceSource.TORCH_PROFILER


def _base(header: KinetoHeader, *tables: Kernels | Operators | Launches) -> int | None:
    """Unix time of the trace's zero. Recorders before 2024 wrote unix times and no base."""
    if header.base_unix_ns is not None:
        return header.base_unix_ns
    first = next((int(table.start_ns[0]) for table in tables if len(table.start_ns)), 0)
    return 0 if first >= _UNIX_TIMES_FROM_NS else None


def _no_events(path: Path, stream: KinetoStream, damage: str, log: WarningLog) -> UnreadableInputError:
    if damage:
        return UnreadableInputError(
            f"{path} is damaged before its first event: {damage}.", remedy="Copy it again."
        )
    if not stream.header and not stream.found_events:
        return UnreadableInputError(f"{path} is empty.", remedy="Record the trace again.")
    skipped = next((one for one in log.warnings() if one.kind == "malformed_event"), None)
    if skipped is not None:
        return UnreadableInputError(
            f"{path} holds no trace event that can be read: {skipped.text} ({skipped.count:,} in all).",
            remedy="Record the trace again, or copy it again if it was whole.",
        )
    if stream.found_events:
        return UnreadableInputError(
            f"{path} holds no trace event.",
            remedy="The profiler recorded nothing: check its activities and window.",
        )
    return UnreadableInputError(
        f"{path} is not a PyTorch Profiler trace: it has no traceEvents.",
        remedy="Give a .trace.json(.gz), a Nsight Systems .sqlite or a perf dump.",
    )
