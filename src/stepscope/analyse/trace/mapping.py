"""From a richly recorded pass to a lean recording: which operator, module and line made each call.

The same part of a run (a denoiser's call, what follows it, a stage) issues the same sequence of calls each
time; a part of the lean recording is aligned with the same part of the mapping pass that fits it best.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.trace.align import U64, Alignment, align
from stepscope.analyse.trace.attribute import HostPlaces, operators_at
from stepscope.analyse.trace.call_sequence import CallSequence, Vocabulary, call_sequence
from stepscope.analyse.trace.segments import Boundary
from stepscope.model.source_map import LineLog, MappedCalls, Match
from stepscope.model.trace import I32, I64, SourceLine, Trace

TRIED = 4
"""Parts of the mapping pass that a part of the recording is aligned with where none is equal to it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Calls of one part of a run: places ``first`` to ``last`` (exclusive) in its sequence."""

    label: str
    step: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceMap:
    """A mapping pass, ready to be looked up: its calls in order, and what made each."""

    vocabulary: Vocabulary
    thread: int
    of_launches: bool  # else its calls are operators
    token: U64
    parts: dict[str, tuple[Part, ...]]  # by label
    source: I32
    operator: I32
    operator_call: I64  # equal for calls made by the same call of an operator
    shapes: I32
    sources: tuple[SourceLine, ...]
    operators: tuple[str, ...]
    shape_texts: tuple[str, ...]

    @property
    def calls_by_step(self) -> dict[int, int]:
        """How many calls each step of the pass made; under ``NO_STEP`` those outside of steps."""
        counts: Counter[int] = Counter()
        for part in (part for parts in self.parts.values() for part in parts):
            counts[part.step] += part.last - part.first
        return dict(counts)


def map_sources(trace: Trace, marks: Sequence[Boundary], lines: LineLog) -> SourceMap:
    """Make the map of a mapping pass. ``marks`` and ``lines`` are on the trace's clock."""
    vocabulary = Vocabulary()
    calls = call_sequence(trace, lines.thread, vocabulary)
    operator = _operators_of(trace, calls)
    known = operator >= 0
    name, shapes = (
        np.where(known, column[np.maximum(operator, 0)], -1) if len(column) else operator
        for column in (trace.operators.name, trace.operators.shapes)
    )
    by_label: defaultdict[str, list[Part]] = defaultdict(list)
    for part in _parts(calls, marks):
        by_label[part.label].append(part)
    return SourceMap(
        vocabulary=vocabulary,
        thread=lines.thread,
        of_launches=calls.of_launches,
        token=calls.token,
        parts={label: tuple(parts) for label, parts in by_label.items()},
        source=_lines_of(calls, lines),
        operator=name.astype(np.int32),
        operator_call=operator,
        shapes=shapes.astype(np.int32),
        sources=lines.sources,
        operators=trace.names,
        shape_texts=trace.shapes,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """For each call its partner in the map (-1: none), how sure that is, and why some have none."""

    partner: I64
    match: NDArray[np.int8]
    reason: I32  # index into reasons
    reasons: tuple[str, ...]


def apply_map(trace: Trace, marks: Sequence[Boundary], known: SourceMap) -> MappedCalls:
    """What made each call of a lean recording, as far as the map tells. ``marks`` are on its clock."""
    calls = call_sequence(trace, known.thread, known.vocabulary)
    return _mapped(trace, calls, _match(calls, marks, known), known)


def _match(calls: CallSequence, marks: Sequence[Boundary], known: SourceMap) -> _Matches:
    """Match part by part; the same part with the same calls, step after step, is looked at once."""
    partner = np.full(len(calls.row), -1, np.int64)
    match = np.zeros(len(calls.row), np.int8)
    reason = np.full(len(calls.row), -1, np.int32)
    reasons: dict[str, int] = {}
    seen: dict[tuple[str, bytes], tuple[Alignment, int]] = {}
    for part in _parts(calls, marks):
        inside = slice(part.first, part.last)
        key = (part.label, calls.token[inside].tobytes())
        if key not in seen:
            seen[key] = _best(calls.token[inside], part, known)
        alignment, offset = seen[key]
        partner[inside] = np.where(alignment.partner >= 0, alignment.partner + offset, -1)
        match[inside] = alignment.match
        if (missing := alignment.match == Match.NONE).any():
            reason[inside][missing] = reasons.setdefault(_reason(part, known), len(reasons))
    return _Matches(partner, match, reason, tuple(reasons))


def _reason(part: Part, known: SourceMap) -> str:
    if part.label not in known.parts:
        return f"'{part.label}' was not in the mapping pass"
    return f"'{part.label}' issued other calls than in the mapping pass"


def _best(tokens: U64, part: Part, known: SourceMap) -> tuple[Alignment, int]:
    """The alignment with the part of the map that fits best, and where that part begins in the map."""
    candidates = sorted(known.parts.get(part.label, ()), key=lambda one: (one.step != part.step, -one.step))
    for one in candidates:
        other = known.token[one.first : one.last]
        if len(other) == len(tokens) and bool((other == tokens).all()):
            return align(tokens, other), one.first
    aligned = [(align(tokens, known.token[one.first : one.last]), one.first) for one in candidates[:TRIED]]
    nothing = (align(tokens, tokens[:0]), 0)
    return max(aligned, key=lambda pair: pair[0].checked, default=nothing)


def _parts(calls: CallSequence, marks: Sequence[Boundary]) -> list[Part]:
    """The parts that hold calls, in order."""
    starts = np.array([mark.at_ns for mark in marks], np.int64)
    edges = np.append(np.searchsorted(calls.at_ns, starts), len(calls.at_ns))
    return [
        Part(label=mark.label, step=mark.step, first=int(first), last=int(last))
        for mark, first, last in zip(marks, edges[:-1], edges[1:], strict=True)
        if last > first
    ]


def _operators_of(trace: Trace, calls: CallSequence) -> I64:
    """The row of the operator that made each call: an operator itself is its own."""
    if not calls.of_launches:
        return calls.row
    launches = trace.launches
    row = calls.row
    return operators_at(trace, HostPlaces(launches.process[row], launches.thread[row], calls.at_ns))


def _lines_of(calls: CallSequence, lines: LineLog) -> I32:
    if not len(lines.at_ns):
        return np.full(len(calls.row), -1, np.int32)
    place = np.searchsorted(lines.at_ns, calls.at_ns, side="right") - 1
    result: I32 = np.where(place >= 0, lines.source[np.maximum(place, 0)], -1).astype(np.int32)
    return result


def _mapped(trace: Trace, calls: CallSequence, matches: _Matches, known: SourceMap) -> MappedCalls:
    """Spread what was found for calls over all rows. A match by place has no exact line any more."""
    partner, match = matches.partner, matches.match
    found = partner >= 0
    row, other = calls.row[found], partner[found]
    guessed = match[found] == Match.BY_PLACE
    source = known.source[other]
    sources = (*known.sources, *(replace(one, line_exact=False) for one in known.sources))
    source = np.where(guessed & (source >= 0), source + len(known.sources), source)
    operator_call = known.operator_call[other]
    continues = np.zeros(len(row), np.bool_)
    continues[1:] = (operator_call[1:] == operator_call[:-1]) & (operator_call[1:] >= 0)
    continues[1:] &= np.diff(other) == 1
    size = len(trace.launches.start_ns) if calls.of_launches else len(trace.operators.start_ns)

    def spread(rows: I64, values: NDArray[np.generic], empty: int = -1) -> I32:
        result = np.full(size, empty, np.int32)
        result[rows] = values
        return result

    return MappedCalls(
        match=spread(calls.row, match, Match.NO_CALL).astype(np.int8),
        source=spread(row, source),
        operator=spread(row, known.operator[other]),
        shapes=spread(row, known.shapes[other]),
        reason=spread(calls.row, matches.reason),
        continues=spread(row, continues, 0).astype(np.bool_),
        sources=sources,
        operators=known.operators,
        shape_texts=known.shape_texts,
        reasons=matches.reasons,
    )
