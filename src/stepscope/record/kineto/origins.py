"""Reads back what stepscope writes on work: the operator, module and line that made each call.

A lean trace has no operators of its own. Each call that is mapped becomes one here, as long as its call (of
several calls of one operator, from the first to the last), so that everything that looks for the operator
around a call finds it; ``LEAN_OPERATORS`` in the metadata says that their durations are those of calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.model.trace import SourceLine
from stepscope.record.kineto.event import EventArgs
from stepscope.record.trace_tables import Column, Interner, TableParts

LEAN_OPERATORS = "operators_are_calls"
"""In a trace's metadata: the operators were not recorded, each lasts as long as the calls it made."""

NO_SOURCE = -1
Origin = tuple[int, int, int, int]
"""Indices of the operator's name, the source and the shapes, and whether it goes on with the last call's."""

_Key = tuple[bytes, bytes, bytes, bool]


class Origins:
    """Collects the origins of work by correlation."""

    def __init__(self, names: Interner) -> None:
        self.sources: dict[SourceLine, int] = {}
        self._names = names
        self._rows = array("q")  # correlation, operator, source, shapes, continues
        self._known: dict[_Key, tuple[int, int]] = {}

    def note(self, args: Sequence[EventArgs]) -> None:
        """Keep the origins among the arguments of launches, kernels and copies."""
        for one in args:
            if one.correlation >= 0 and (one.operator or one.source):
                self._rows.extend((one.correlation, *self._of(one)))

    def sources_of(self, args: Sequence[EventArgs]) -> Column:
        """The source of each operator's own arguments, -1 where it has none."""
        return np.array([self._of(one)[1] if one.source else NO_SOURCE for one in args], np.int32)

    @staticmethod
    def shape_of(args: EventArgs) -> int:
        """Index into the header's table of shapes, -1 where there is none."""
        return _index(args.shape_index)

    def add_operators(self, launches: TableParts, operators: TableParts) -> bool:
        """Append an operator for each mapped call; False where nothing is mapped."""
        if not self._rows or not launches.parts:
            return False
        table = np.array(self._rows, np.int64).reshape(-1, 5)
        table = table[np.unique(table[:, 0], return_index=True)[1]]
        calls = {
            name: np.concatenate([part[name] for part in launches.parts])
            for name in ("name", "process", "thread", "start_ns", "duration_ns", "correlation")
        }
        place = np.minimum(np.searchsorted(table[:, 0], calls["correlation"]), len(table) - 1)
        mapped = np.flatnonzero(table[place, 0] == calls["correlation"])
        order = mapped[np.lexsort((calls["start_ns"][mapped], calls["thread"][mapped]))]
        operators.add(**_operator_columns({k: v[order] for k, v in calls.items()}, table[place[order]]))
        return True

    def _of(self, args: EventArgs) -> Origin:
        exact = bytes(args.is_exact) != b"false"
        key = (bytes(args.operator), bytes(args.source), bytes(args.module), exact)
        known = self._known.get(key)
        if known is None:
            operator = _text(args.operator)
            name = NO_SOURCE if operator is None else self._names[operator]
            line = source_line(_text(args.source), _text(args.module), exact=exact)
            source = NO_SOURCE if line is None else self.sources.setdefault(line, len(self.sources))
            known = self._known[key] = (name, source)
        return (*known, _index(args.shape_index), int(bytes(args.goes_on) == b"true"))


def source_line(text: str | None, module: str | None, *, exact: bool) -> SourceLine | None:
    """The place that ``file:line function`` names; None for anything else."""
    if text is None:
        return None
    place, _, function = text.rpartition(" ")
    file, _, line = place.rpartition(":")
    if not file or not line.isascii() or not line.isdigit() or len(line) > 9:
        return None
    return SourceLine(file=file, line=int(line), function=function, line_exact=exact, module_path=module)


def shape_indices(shapes: Column, table: object, texts: Interner) -> Column:
    """Indices into the header's table of shapes as indices of texts; what the table lacks is unknown."""
    entries = table if isinstance(table, list) else []
    known = [texts[msgspec.json.encode(entry).decode()] for entry in entries]
    lookup = np.array([*known, -1], np.int32)
    inside = (shapes >= 0) & (shapes < len(known))
    return lookup[np.where(inside, shapes, len(known))]


def _operator_columns(calls: dict[str, Column], origins: NDArray[np.int64]) -> dict[str, Column]:
    """One row for each call of an operator, from its first launch to its last."""
    first = origins[:, 4] == 0
    first[:1] = True
    first[1:] |= calls["thread"][1:] != calls["thread"][:-1]
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], len(first)) - 1
    operator = origins[starts, 1]
    return {
        "name": np.where(operator >= 0, operator, calls["name"][starts]).astype(np.int32),
        "process": calls["process"][starts],
        "thread": calls["thread"][starts],
        "start_ns": calls["start_ns"][starts],
        "duration_ns": calls["start_ns"][ends] + calls["duration_ns"][ends] - calls["start_ns"][starts],
        "shapes": origins[starts, 3],
        "external_id": np.zeros(len(starts), np.int64),
        "source": origins[starts, 2].astype(np.int32),
    }


def _index(raw: msgspec.Raw) -> int:
    digits = bytes(raw)
    return int(digits) if digits.isdigit() and len(digits) < 9 else -1


def _text(raw: msgspec.Raw) -> str | None:
    """A JSON string of ours; anything else belongs to another recorder."""
    if not bytes(raw).startswith(b'"'):
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return None
