"""Turns batches of Kineto events into the columns of a ``Trace``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.record.call_names import copy_kind, host_memory_pinned
from stepscope.record.kineto.event import NO_ARGS, Event, EventArgs, Identifier, whole_number
from stepscope.record.kineto.origins import Origins
from stepscope.record.kineto.time import EventTimes, event_times
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

_I32, _I64, _F32, _F64, _BOOL = np.int32, np.int64, np.float32, np.float64, np.bool_
KERNEL_CATEGORIES = frozenset({"kernel", "Kernel"})
COPY_CATEGORIES = frozenset({"gpu_memcpy", "Memcpy"})
FILL_CATEGORIES = frozenset({"gpu_memset", "Memset"})
OPERATOR_CATEGORIES = frozenset({"cpu_op", "Operator"})
FRAME_CATEGORIES = frozenset({"python_function"})
ANNOTATION_CATEGORIES = frozenset({"user_annotation"})
_LAUNCH_SUFFIXES = ("_runtime", "_driver")
_LAUNCH_NAMES = frozenset({"Runtime"})
_NO_SHAPES = -1
_MOVED_TRACKS = 1_800_000_000  # above any thread of Linux (4,194,304)


class KinetoColumns:
    """Grows the tables; ``process`` columns hold pids until the trace is put together."""

    def __init__(self, log: WarningLog) -> None:
        self.names = Interner()
        self.shapes = Interner()
        self.process_labels: set[str] = set()
        self.event_count = 0
        self.kernels = TableParts(KERNEL_COLUMNS)
        self.copies = TableParts(COPY_COLUMNS)
        self.launches = TableParts(LAUNCH_COLUMNS)
        self.operators = TableParts(OPERATOR_COLUMNS)
        self.frames = TableParts(FRAME_COLUMNS)
        self.annotations = TableParts(ANNOTATION_COLUMNS)
        self.counters = TableParts(COUNTER_COLUMNS)
        self.origins = Origins(self.names)
        self._log = log
        self._raw_shapes: dict[tuple[bytes, bytes, bytes], int] = {}
        self._text_ids = Interner()

    def add(self, events: Sequence[Event]) -> None:
        """Sort a batch into the tables; categories that no table holds are only counted."""
        self.event_count += len(events)
        by_category: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            by_category[event.cat].append(event)
        for category, members in by_category.items():
            add = self._adder(category)
            if add is not None:
                self._add_timed(add, [event for event in members if event.ph == "X"])
        self._add_process_labels(by_category.get("", ()))
        self._add_counters(by_category.get("cpu_instant_event", ()))

    def _adder(self, category: str) -> Callable[[Sequence[Event], EventTimes], None] | None:
        if category in KERNEL_CATEGORIES:
            return self._add_kernels
        if category in COPY_CATEGORIES:
            return self._add_copies
        if category in FILL_CATEGORIES:
            return self._add_fills
        if category in OPERATOR_CATEGORIES:
            return self._add_operators
        if category in FRAME_CATEGORIES:
            return self._add_frames
        if category in ANNOTATION_CATEGORIES:
            return self._add_annotations
        if category.endswith(_LAUNCH_SUFFIXES) or category in _LAUNCH_NAMES:
            return self._add_launches
        return None

    def _add_timed(self, add: Callable[[Sequence[Event], EventTimes], None], events: list[Event]) -> None:
        times = event_times(events, self._log)
        if times.readable is not None:
            events = [event for event, good in zip(events, times.readable, strict=True) if good]
        if events:
            add(events, times)

    def _add_kernels(self, events: Sequence[Event], times: EventTimes) -> None:
        args = _args(events)
        self.origins.note(args)
        self.kernels.add(
            **self._gpu(events, args, times),
            graph_node=int_column([a.graph_node for a in args]),
            grid=_triples([a.grid for a in args]),
            block=_triples([a.block for a in args]),
            registers=int_column([a.registers for a in args], _I32),
            shared_bytes=int_column([a.shared_bytes for a in args], _I32),
            occupancy=_occupancy(args),
        )

    def _add_copies(self, events: Sequence[Event], times: EventTimes) -> None:
        args = _args(events)
        self.origins.note(args)
        kinds = {name: (copy_kind(name), host_memory_pinned(name)) for name in {e.name for e in events}}
        self.copies.add(
            **self._gpu(events, args, times),
            kind=int_column([kinds[e.name][0] for e in events], _I32),
            bytes=int_column([a.bytes for a in args]),
            pinned=int_column([kinds[e.name][1] for e in events], _I32),
        )

    def _add_fills(self, events: Sequence[Event], times: EventTimes) -> None:
        args = _args(events)
        self.origins.note(args)
        unknown = np.full(len(events), -1, _I32)
        self.copies.add(
            **self._gpu(events, args, times),
            kind=unknown,
            bytes=int_column([a.bytes for a in args]),
            pinned=unknown,
        )

    def _add_launches(self, events: Sequence[Event], times: EventTimes) -> None:
        args = _args(events)
        self.origins.note(args)
        correlation = int_column([a.correlation for a in args])
        self.launches.add(**self._host(events, times), correlation=correlation)

    def _add_operators(self, events: Sequence[Event], times: EventTimes) -> None:
        args = _args(events)
        self.operators.add(
            **self._host(events, times),
            shapes=int_column([self._shapes_of(a) for a in args], _I32),
            external_id=int_column([a.external_id for a in args]),
            source=self.origins.sources_of(args),
        )

    def _add_frames(self, events: Sequence[Event], times: EventTimes) -> None:
        self.frames.add(**self._host(events, times))

    def _add_annotations(self, events: Sequence[Event], times: EventTimes) -> None:
        args = _args(events)
        columns = self._host(events, times)
        ours = np.array([a.stepscope for a in args], _BOOL)
        launching = [
            a.thread if a.thread is not None and (a.stepscope or _is_moved(e)) else e.tid
            for e, a in zip(events, args, strict=True)
        ]
        self.annotations.add(**columns | {"thread": self._identifiers(launching)}, ours=ours)

    def _add_process_labels(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.ph == "M" and event.name == "process_name" and event.args is not None:
                self.process_labels.add(str(_parsed(event.args.label)))

    def _add_counters(self, events: Sequence[Event]) -> None:
        """Allocator samples: two counters, device -1 for host memory."""
        samples = [e for e in events if e.name == "[memory]" and e.args is not None]
        if not samples:
            return
        times = event_times(samples, self._log)
        if times.readable is not None:
            samples = [event for event, good in zip(samples, times.readable, strict=True) if good]
        args = _args(samples)
        device = int_column([a.device_id if a.device_type != 0 else -1 for a in args], _I32)
        for name, values in (
            ("allocated_bytes", [a.total_allocated for a in args]),
            ("reserved_bytes", [a.total_reserved for a in args]),
        ):
            known = np.array([value >= 0 for value in values], _BOOL)
            label = np.full(int(known.sum()), self.names[name], _I32)
            value = np.array(values, _F64)[known]
            self.counters.add(name=label, device=device[known], at_ns=times.start_ns[known], value=value)

    def _host(self, events: Sequence[Event], times: EventTimes) -> dict[str, Column]:
        return {
            "name": text_indices(self.names, [e.name for e in events]),
            "process": self._identifiers([e.pid for e in events]),  # a pid until all processes are known
            "thread": self._identifiers([e.tid for e in events]),
            "start_ns": times.start_ns,
            "duration_ns": times.duration_ns,
        }

    def _gpu(
        self, events: Sequence[Event], args: Sequence[EventArgs], times: EventTimes
    ) -> dict[str, Column]:
        """A GPU event's pid is its device and its tid the stream, where the arguments do not say."""
        device = [e.pid if a.device is None else a.device for e, a in zip(events, args, strict=True)]
        stream = [e.tid if a.stream is None else a.stream for e, a in zip(events, args, strict=True)]
        return {
            "name": text_indices(self.names, [e.name for e in events]),
            "process": np.full(len(events), -1, _I64),  # until its launch is known
            "device": int_column(self._identifiers(device).tolist(), _I32),
            "stream": self._identifiers(stream),
            "start_ns": times.start_ns,
            "duration_ns": times.duration_ns,
            "correlation": int_column([a.correlation for a in args]),
        }

    def _identifiers(self, values: Sequence[Identifier]) -> NDArray[np.int64]:
        """Process and thread ids; a text gets a negative number of its own, below -1."""
        if set(map(type, values)) != {int}:
            return self._odd_ids(values)
        try:
            return np.array(values, _I64)
        except OverflowError:
            return self._odd_ids(values)

    def _odd_ids(self, values: Sequence[Identifier]) -> NDArray[np.int64]:
        numbers = (whole_number(value) for value in values)
        texts = (-2 - self._text_ids[str(value)] for value in values)
        return np.array(
            [t if n is None or abs(n) >> 63 else n for n, t in zip(numbers, texts, strict=True)], _I64
        )

    def _shapes_of(self, args: EventArgs) -> int:
        """Index of the operator's input shapes; equal ones share it whatever the file's layout."""
        if not args.input_dims:
            return self.origins.shape_of(args) if args.source else _NO_SHAPES
        raw = (bytes(args.input_dims), bytes(args.input_types), bytes(args.concrete_inputs))
        index = self._raw_shapes.get(raw)
        if index is None:
            index = self._raw_shapes[raw] = self.shapes[shapes_text(*raw)]
        return index


def shapes_text(dims: bytes, types: bytes, concrete: bytes) -> str:
    """Compact JSON: ``{"dims": [[1, 139], ...], "types": ["float", ...], "concrete": ["", "1", ...]}``."""
    document = {"dims": _parsed(dims), "types": _parsed(types), "concrete": _parsed(concrete)}
    return msgspec.json.encode(document).decode()


def _parsed(raw: bytes | msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw or b"[]")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []


def _is_moved(event: Event) -> bool:
    """Whether stepscope has put a range on a track of its own; its thread is among its arguments then."""
    return isinstance(event.tid, int) and event.tid >= _MOVED_TRACKS


def _args(events: Sequence[Event]) -> list[EventArgs]:
    return [event.args or NO_ARGS for event in events]


def _triples(values: Sequence[tuple[int, int, int] | None]) -> NDArray[np.int32]:
    flat = [number for value in values for number in (value or (-1, -1, -1))]
    return int_column(flat, _I32).reshape(-1, 3)


def _occupancy(args: Sequence[EventArgs]) -> NDArray[np.float32]:
    unknown = float("nan")
    percent = [unknown if a.occupancy_percent is None else a.occupancy_percent for a in args]
    return (np.array(percent, _F64) / 100).astype(_F32)
