"""Collects columns part by part and makes the tables of a ``Trace`` of them, sorted by start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
_Table = TypeVar("_Table")

_I32, _I64, _F32, _F64, _BOOL = np.int32, np.int64, np.float32, np.float64, np.bool_
_HOST = {"name": _I32, "process": _I32, "thread": _I64, "start_ns": _I64, "duration_ns": _I64}
_GPU = {
    "name": _I32, "process": _I32, "device": _I32, "stream": _I64, "start_ns": _I64, "duration_ns": _I64,
    "correlation": _I64,
}  # fmt: skip
KERNEL_COLUMNS = _GPU | {
    "graph_node": _I64, "grid": _I32, "block": _I32, "registers": _I32, "shared_bytes": _I32,
    "occupancy": _F32,
}  # fmt: skip
COPY_COLUMNS = _GPU | {"kind": _I32, "bytes": _I64, "pinned": _I32}
LAUNCH_COLUMNS = _HOST | {"correlation": _I64}
OPERATOR_COLUMNS = _HOST | {"shapes": _I32, "external_id": _I64, "source": _I32}
FRAME_COLUMNS = _HOST
ANNOTATION_COLUMNS = _HOST | {"ours": _BOOL}
COUNTER_COLUMNS = {"name": _I32, "device": _I32, "at_ns": _I64, "value": _F64}


class Interner(dict[str, int]):
    """Text to index, in order of first sight. A lookup is a plain dict access: that is what makes it fast."""

    def __missing__(self, text: str) -> int:
        index = self[text] = len(self)
        return index

    def texts(self) -> tuple[str, ...]:
        """The text of each index."""
        return tuple(self)


@dataclass(slots=True)
class TableParts:
    """One table while it grows: each part is a dict of equally long columns."""

    dtypes: Mapping[str, Any]
    parts: list[dict[str, Column]] = field(default_factory=list)

    def add(self, **columns: Column) -> None:
        """Append rows; every column of the table must be given, of a type that ``build`` can cast."""
        self.parts.append(columns)

    def __len__(self) -> int:
        first = next(iter(self.dtypes))
        return sum(len(part[first]) for part in self.parts)

    def build(self, table: type[_Table]) -> _Table:
        """The finished table, sorted by start, the enclosing of two slices first. Frees the parts."""
        columns = {name: self._take(name, dtype) for name, dtype in self.dtypes.items()}
        self.parts.clear()
        order = start_order(columns)
        if order is not None:
            for name in columns:
                columns[name] = columns[name][order]
        return table(**columns)

    def _take(self, name: str, dtype: Any) -> Column:
        pieces = [part.pop(name) for part in self.parts]
        if not pieces:
            shape = (0, 3) if name in _TRIPLES else (0,)
            return np.empty(shape, dtype)
        return np.concatenate(pieces, dtype=dtype, casting="unsafe")


_TRIPLES = frozenset({"grid", "block"})


def start_order(columns: dict[str, Column]) -> NDArray[np.int64] | None:
    """Row order by start, then longest first; None where the rows already stand so."""
    start = columns["at_ns"] if "at_ns" in columns else columns["start_ns"]
    length = columns.get("duration_ns")
    steps = np.diff(start)
    if (steps > 0).all():
        return None
    if length is None or not (steps == 0).any():
        return np.argsort(start, kind="stable")
    return np.lexsort((-length, start))


def int_column(values: Sequence[int], dtype: type[np.signedinteger[Any]] = np.int64) -> Column:
    """Integers as a column; those outside the type's range, which no recorder means, become -1."""
    try:
        return np.array(values, dtype)
    except (OverflowError, ValueError):
        limits = np.iinfo(dtype)
        return np.array([v if limits.min <= v <= limits.max else -1 for v in values], dtype)


def text_indices(names: Interner, values: Iterable[str]) -> NDArray[np.int32]:
    """The index of each text."""
    return np.array(list(map(names.__getitem__, values)), np.int32)
