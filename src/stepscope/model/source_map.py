"""What ties the calls of a recording to Python source: noted line by line, and as written in a trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stepscope.model.trace import I32, I64, SourceLine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LineLog:
    """From each moment until the next, the innermost line of a user's code on one thread was this one."""

    thread: int  # native id, as traces name it
    at_ns: I64  # rising; perf_counter_ns as noted, the trace's own clock once converted
    source: I32  # index into sources, -1: no such code was at work
    sources: tuple[SourceLine, ...]


class Match(IntEnum):
    """How sure it is that two calls of two recordings are the same."""

    NO_CALL = -1  # a query, or a call of another thread: not looked for
    NONE = 0
    BY_PLACE = 1  # other names or sizes, but as many calls as there between two checked ones
    CHECKED = 2  # same name and size in the same order


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSummary:
    """How well calls could be mapped; part of what is written."""

    calls: int  # that launch work or wait for it
    checked: int
    by_place: int
    exact_lines: int  # calls with the exact line
    unmapped: dict[str, int] = field(default_factory=dict)  # reason -> calls


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedCalls:
    """For each row of a trace's launches (of its operators, where nothing was launched): what called it.

    Every array has one entry a row; -1 where nothing is known.
    """

    match: NDArray[np.int8]  # values of Match
    source: I32  # index into sources
    operator: I32  # index into operators
    shapes: I32  # index into shape_texts
    reason: I32  # index into reasons, of calls without a match
    continues: NDArray[np.bool_]  # launched by the same call of the operator as the row before
    sources: tuple[SourceLine, ...]
    operators: tuple[str, ...]
    shape_texts: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    def summary(self, rows: I64) -> MappingSummary:
        """Of some rows: those that are written."""
        match, source, reason = self.match[rows], self.source[rows], self.reason[rows]
        exact = np.array([*(line.line_exact for line in self.sources), False], np.bool_)
        return MappingSummary(
            calls=int((match != Match.NO_CALL).sum()),
            checked=int((match == Match.CHECKED).sum()),
            by_place=int((match == Match.BY_PLACE).sum()),
            exact_lines=int(exact[source].sum()),
            unmapped={
                text: count
                for index, text in enumerate(self.reasons)
                if (count := int((reason == index).sum()))
            },
        )
