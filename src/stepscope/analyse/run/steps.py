"""Denoising steps out of pieces: where one ends and the next begins, and the forwards inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stepscope.analyse.run.step_cache import with_work
from stepscope.analyse.run.step_parts import parts_of
from stepscope.analyse.run.timeline import Piece, segments_of
from stepscope.model.recording import CallKind, Recording
from stepscope.model.run import Forward, Span, StepRun
from stepscope.model.vocabulary import STEP_SPAN_PREFIX, Stage

NO_SCHEDULER = "no scheduler.step was seen: each denoiser forward is counted as a step"
_LOOP = (CallKind.FORWARD, CallKind.CONDITIONER, CallKind.SCHEDULER_STEP)


@dataclass(slots=True)
class _OpenStep:
    """A step that is still being put together."""

    stage_index: int
    pieces: list[Piece] = field(default_factory=list)
    waiting: list[Piece] = field(default_factory=list)  # after a scheduler.step: this step's or the next's
    forwards: dict[int, list[Piece]] = field(default_factory=dict)
    scheduler_calls: set[int] = field(default_factory=set)


class _Numbering:
    """Walks over the pieces of all denoising stages in order."""

    def __init__(self, recording: Recording) -> None:
        self._edges = recording.edges
        self._by_forward = not any(edge.kind is CallKind.SCHEDULER_STEP for edge in recording.edges)
        self.done: list[_OpenStep] = []
        self._open: _OpenStep | None = None
        self._stage_index = -1

    def add(self, piece: Piece, stage_index: int) -> None:
        step = self._open
        if step is not None and step.stage_index != stage_index and self._ended(step):
            step = self._begin(stage_index)  # a later stage lay between
        call = next((call for call in piece.calls if self._edges[call].kind in _LOOP), None)
        step = step or self._begin(stage_index)
        if call is None:
            self._beside_known_calls(step, piece)
            return
        if self._edges[call].kind is CallKind.SCHEDULER_STEP:
            step.scheduler_calls.add(call)
        else:
            step = self._at_forward(step, call, stage_index)
            if self._edges[call].kind is CallKind.FORWARD:
                step.forwards.setdefault(call, []).append(piece)
        step.pieces += [*step.waiting, piece]
        step.waiting.clear()

    def _beside_known_calls(self, step: _OpenStep, piece: Piece) -> None:
        """Time before the first call of a step is its own; after its last, what the iteration has left."""
        if not step.scheduler_calls:
            step.pieces.append(piece)
            return
        step.waiting.append(piece)
        if any(self._edges[call].kind is CallKind.ITERATION for call in piece.calls):
            step.pieces += step.waiting
            step.waiting.clear()

    def _ended(self, step: _OpenStep) -> bool:
        return bool(step.scheduler_calls) or (self._by_forward and bool(step.forwards))

    def _at_forward(self, step: _OpenStep, call: int, stage_index: int) -> _OpenStep:
        """The step a forward belongs to: a new one if the open one has ended, which takes what waited."""
        if call in step.forwards or not self._ended(step):
            return step
        waiting, step.waiting = step.waiting, []
        step = self._begin(stage_index)
        step.waiting = waiting
        return step

    def _begin(self, stage_index: int) -> _OpenStep:
        self._open = _OpenStep(stage_index)
        self.done.append(self._open)
        return self._open


def denoising_stages(recording: Recording) -> frozenset[str]:
    """Names of the stages that hold denoising loops; an engine may name its own (LTX2DenoisingStage)."""
    named = {edge.stage for edge in recording.edges if edge.kind in _LOOP and edge.stage is not None}
    return frozenset({Stage.DENOISING.value, *named})


def number_steps(
    recording: Recording, pieces: list[Piece], occurrence: list[int]
) -> tuple[list[StepRun], tuple[str, ...]]:
    """The steps of a run, and what must be said about them.

    A step ends with the last ``scheduler.step`` before the next denoiser forward or later stage, or after it
    where the pipeline's progress bar moves on; the next begins there. The first of a denoising stage begins
    where the stage does; numbering runs on over stages.
    """
    marked = _Marked(recording, zip(pieces, occurrence, strict=True))
    numbering = _Numbering(recording)
    denoising = denoising_stages(recording)
    for piece, stage_index in zip(pieces, occurrence, strict=True):
        if piece.stage in denoising and stage_index not in marked.stages:
            numbering.add(piece, stage_index)
    found = sorted((*numbering.done, *marked.done.values()), key=_starts_at)
    steps = [_step_run(recording, index, step) for index, step in enumerate(found)]
    steps = with_work(steps, recording.cached_forwards)
    by_forward = bool(numbering.done) and not any(step.scheduler_calls for step in steps)
    return steps, (NO_SCHEDULER,) if by_forward else ()


class _Marked:
    """Steps that the program marked itself, the outermost where marks are nested."""

    def __init__(self, recording: Recording, placed: Iterable[tuple[Piece, int]]) -> None:
        self._edges = recording.edges
        self.done: dict[int, _OpenStep] = {}
        self.stages: set[int] = set()  # occurrences that hold such steps: nothing else is a step there
        for piece, stage_index in placed:
            self._add(piece, stage_index)

    def _add(self, piece: Piece, stage_index: int) -> None:
        mark = next((call for call in piece.calls if self._edges[call].kind is CallKind.STEP), None)
        if mark is None or piece.stage is None:
            return
        step = self.done.setdefault(mark, _OpenStep(stage_index))
        self.stages.add(step.stage_index)
        step.pieces.append(piece)
        for call in piece.calls:
            if self._edges[call].kind is CallKind.FORWARD:
                step.forwards.setdefault(call, []).append(piece)
            elif self._edges[call].kind is CallKind.SCHEDULER_STEP:
                step.scheduler_calls.add(call)


def _starts_at(step: _OpenStep) -> int:
    return (step.pieces or step.waiting)[0].start.host_ns


def _step_run(recording: Recording, index: int, step: _OpenStep) -> StepRun:
    pieces = [*step.pieces, *step.waiting]
    calls = [recording.edges[call] for call in sorted(step.scheduler_calls)]
    return StepRun(
        index=index,
        stage_index=step.stage_index,
        span=_span(recording, f"{STEP_SPAN_PREFIX}{index}", pieces),
        parts=parts_of(recording.edges, pieces),
        forwards=tuple(
            Forward(
                span=_span(recording, recording.edges[call].name, forward),
                component=recording.edges[call].component,
                batch=recording.edges[call].batch,
                label=recording.edges[call].label,
            )
            for call, forward in step.forwards.items()
        ),
        scheduler_calls=len(calls),
        solver_order=max((edge.solver_order for edge in calls), default=1),
    )


def _span(recording: Recording, name: str, pieces: list[Piece]) -> Span:
    return Span(
        name=name,
        segments=segments_of(pieces),
        device=recording.device,
        stream=recording.stream,
        thread=recording.thread,
    )
