"""A recording cut into pieces, each owned by one stage: the ground on which stages and steps are built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stepscope.model.recording import CallKind, Edge, Moment, Recording
from stepscope.model.run import Segment
from stepscope.model.vocabulary import Stage, Unmarked

_MARKS = (CallKind.CUSTOM, CallKind.STEP)
_NEUTRAL = (CallKind.HOUSEKEEPING, CallKind.ITERATION)
"""Known calls without a stage: what is not inside another belongs to the next stage, but is not inferred."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The time between two neighbouring edges. ``calls``: edge indices of the open calls, outermost first."""

    start: Moment
    end: Moment
    stage: str | None  # None: a pause or a transfer, which belong to no stage
    calls: tuple[int, ...] = ()
    inferred: bool = False  # lies between known calls
    owner: int | None = None  # edge index of the call whose time this is

    @property
    def duration_ns(self) -> int:
        """By the device where both ends have device times, else by the host."""
        if self.start.device_ns is None or self.end.device_ns is None:
            return self.end.host_ns - self.start.host_ns
        return self.end.device_ns - self.start.device_ns


def cut(recording: Recording) -> list[Piece]:
    """Every nanosecond from start to end in exactly one piece, in order.

    Nested time belongs to the innermost call that has a stage. A gap belongs to the stage of the next known
    call, or to the loop's where it lies between ``scheduler.step`` and the end of that iteration; before the
    first known call to InputValidation, after the last to Postprocessing, or in a run that was cut short to
    the last known call's own stage. In code that marks its own stages, what lies around a mark is in no
    stage: it is called by where it lies (``Unmarked``).
    """
    pieces: list[Piece] = []
    open_calls: list[int] = []
    gaps: list[int] = []  # pieces that wait for the next known call
    last: Edge | None = None  # the known call that ended last
    here = recording.start
    edges = recording.edges

    def close(at: Moment) -> None:
        if open_calls or at != here:
            owner = _owner(edges, open_calls)
            if owner is None:
                gaps.append(len(pieces))
            stage = None if owner is None else edges[owner].stage
            inferred = owner is None and not any(edges[call].kind in _NEUTRAL for call in open_calls)
            pieces.append(Piece(here, at, stage, tuple(open_calls), inferred, owner))

    def give_gaps_to(stage: str) -> None:
        for index in gaps:
            pieces[index] = replace(pieces[index], stage=stage)
        gaps.clear()

    for index, edge in enumerate(edges):
        at = _not_before(here, edge.at)
        close(at)
        taker = _gap_told_by(recording, last, edge)
        if taker is not None:
            give_gaps_to(taker)
        if edge.entering:
            open_calls.append(index)
        else:
            open_calls.pop()
            last = edge if edge.stage is not None else last
        here = at
    close(_not_before(here, recording.end))
    give_gaps_to(_gap_at_end(recording, last, pieces))
    return pieces


def _gap_told_by(recording: Recording, last: Edge | None, edge: Edge) -> str | None:
    """Whose the time since ``last``, the end of the known call before, is; None: this edge does not tell."""
    if edge.entering:
        return None if edge.stage is None else _gap_before(recording, last, edge, edge.stage)
    in_loop = last is not None and last.kind is CallKind.SCHEDULER_STEP and edge.kind is CallKind.ITERATION
    return last.stage if last is not None and in_loop else None


def _gap_before(recording: Recording, last: Edge | None, following: Edge, stage: str) -> str:
    """Whose the time before a known call is that has this stage; ``last`` is the one before it."""
    if not recording.block:
        return Stage.INPUT_VALIDATION.value if last is None else stage
    if last is None:
        return Unmarked.BEFORE.value
    in_loop = last.kind is following.kind is CallKind.STEP and last.stage == stage
    marked = last.kind in _MARKS or following.kind in _MARKS
    return Unmarked.BETWEEN.value if marked and not in_loop else stage


def _gap_at_end(recording: Recording, last: Edge | None, pieces: Sequence[Piece]) -> str:
    """Whose the time after the last known call is: a run that was cut short never came to postprocessing."""
    if last is None:
        return Unmarked.ALL.value if recording.block else Stage.INPUT_VALIDATION.value
    if recording.incomplete_reason is None:
        return Unmarked.AFTER.value if recording.block else Stage.POSTPROCESSING.value
    return next(piece.stage for piece in reversed(pieces) if piece.stage is not None)


def _owner(edges: Sequence[Edge], open_calls: Sequence[int]) -> int | None:
    """The innermost open call that owns time: one with a stage, a pause or a transfer."""
    for index in reversed(open_calls):
        if edges[index].stage is not None or edges[index].kind in (CallKind.PAUSE, CallKind.TRANSFER):
            return index
    return None


def _not_before(here: Moment, at: Moment) -> Moment:
    """``at``, or what is left of it after ``here``: marks of different streams may be out of order."""
    device_ns = at.device_ns
    if device_ns is not None and here.device_ns is not None:
        device_ns = max(device_ns, here.device_ns)
    return Moment(max(at.host_ns, here.host_ns), device_ns)


def segments_of(pieces: Iterable[Piece]) -> tuple[Segment, ...]:
    """Neighbouring pieces joined; a pause, a transfer or another stage between two begins a new segment."""
    joined: list[tuple[Moment, Moment]] = []
    for piece in pieces:
        if joined and joined[-1][1] == piece.start:
            joined[-1] = (joined[-1][0], piece.end)
        else:
            joined.append((piece.start, piece.end))
    return tuple(
        Segment(
            host_start_ns=start.host_ns,
            host_end_ns=end.host_ns,
            device_start_ns=start.device_ns,
            device_end_ns=end.device_ns,
        )
        for start, end in joined
    )
