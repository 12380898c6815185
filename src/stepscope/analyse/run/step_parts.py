"""What a step is made of, known calls and the gaps between them; in which of them an odd step differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from stepscope.analyse.results import StepPartTime, StepTime
from stepscope.analyse.run.timeline import Piece
from stepscope.model.recording import CallKind, Edge
from stepscope.model.run import StepPart

MARKED_CODE = "the marked code"
_IN_LOOP = (CallKind.FORWARD, CallKind.CONDITIONER, CallKind.SCHEDULER_STEP)
_NO_CALL = (CallKind.STEP, CallKind.CUSTOM, CallKind.PIPELINE)

_OWN_CODE = "the pipeline's own code or a callback"

_Key = tuple[str, bool]
"""A part's name, and whether it is a known call."""

TELLS_MOST = 0.5
"""Parts are named that together make at least this share of the difference to the median."""

_MOST_NAMED = 2


def parts_of(edges: Sequence[Edge], pieces: Iterable[Piece]) -> tuple[StepPart, ...]:
    """The pieces of a step summed by the known call that they are of, or by the calls that they lie between.

    All time of the step is in exactly one part, by the run's clock.
    """
    sums: dict[_Key, int] = {}
    gap_ns, last = 0, ""
    for piece in pieces:
        if piece.inferred:
            gap_ns += piece.duration_ns
            continue
        call = next((edges[at] for at in piece.calls if edges[at].kind not in _NO_CALL), None)
        name = MARKED_CODE if call is None else call.name
        if call is None or call.kind in _IN_LOOP:
            if gap_ns:
                _add(sums, _gap(last, name), gap_ns, known=False)
            gap_ns, last = 0, name
        _add(sums, name, piece.duration_ns, known=True)
    if gap_ns:
        _add(sums, f"after {last}" if last else "in the loop", gap_ns, known=False)
    return tuple(StepPart(name=name, known=known, duration_ns=ns) for (name, known), ns in sums.items())


def _add(sums: dict[_Key, int], name: str, duration_ns: int, *, known: bool) -> None:
    sums[name, known] = sums.get((name, known), 0) + duration_ns


def _gap(last: str, following: str) -> str:
    return f"between {last} and {following}" if last else f"before {following}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualParts:
    """What steps have as a rule: the median of their duration and of each part of theirs, in ms."""

    duration_ms: float
    parts_ms: dict[_Key, float]


def usual_parts(steps: Sequence[StepTime]) -> UsualParts | None:
    """The medians of steps that are alike; a part that a step has not counts as zero. None: none is known."""
    known = [step for step in steps if step.parts]
    if not known:
        return None
    each = [{_key(part): part.duration_ms for part in step.parts} for step in known]
    return UsualParts(
        duration_ms=median(step.duration_ms for step in known),
        parts_ms={key: median(one.get(key, 0.0) for one in each) for key in {k for one in each for k in one}},
    )


def where_it_differs(step: StepTime, usual: UsualParts | None) -> str:
    """In which parts of an odd step the difference to the usual ones lies, in words; else nothing."""
    if not step.parts or usual is None:
        return ""
    own = {_key(part): part.duration_ms for part in step.parts}
    difference_ms = step.duration_ms - usual.duration_ms
    sign = 1 if difference_ms > 0 else -1
    more = {
        key: sign * (own.get(key, 0.0) - usual.parts_ms.get(key, 0.0)) for key in {**usual.parts_ms, **own}
    }
    named: list[_Key] = []
    for key in sorted(more, key=more.__getitem__, reverse=True)[:_MOST_NAMED]:
        if sum(more[key] for key in named) < TELLS_MOST * abs(difference_ms) and more[key] > 0:
            named.append(key)
    if sum(more[key] for key in named) < TELLS_MOST * abs(difference_ms):
        return ""
    word = "more" if sign > 0 else "less"
    said = " and ".join(
        f"{more[name, is_call]:.1f} ms {word} {f'in {name}' if is_call else name}" for name, is_call in named
    )
    return said + ("" if all(is_call for _, is_call in named) else f", in no known call: {_OWN_CODE}")


def _key(part: StepPartTime) -> _Key:
    return part.name, part.known
