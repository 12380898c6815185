"""What ties the calls of a recording to Python source: noted line by line, and as written in a trace."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedCalls:
    """For each row of a trace's launches (of its operators, where nothing was launched): what called it.

    Every array has one entry a row; -1 where nothing is known.
    """

    source: I32  # index into sources
    operator: I32  # index into operators
    shapes: I32  # index into shapes
    continues: NDArray[np.bool_]  # launched by the same call of the operator as the row before
    sources: tuple[SourceLine, ...]
    operators: tuple[str, ...]
    shape_texts: tuple[str, ...]
    summary: MappingSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSummary:
    """How well a recording could be mapped; part of what is written."""

    calls: int  # that launch work or wait for it
    checked: int  # found in the mapping pass with the same name and size, in order
    by_place: int  # as many calls as there between two checked ones, of other names or sizes
    exact_lines: int  # calls with the exact line
    unmapped: dict[str, int] = field(default_factory=dict)  # reason -> calls
