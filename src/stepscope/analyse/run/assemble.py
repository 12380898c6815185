"""From a recording to a run: stages, steps, forwards, transfers. Pure; the words are the design's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepscope.analyse.run.cpu_trust import with_cpu_warning
from stepscope.analyse.run.step_cache import use_of, with_cached_steps
from stepscope.analyse.run.steps import number_steps
from stepscope.analyse.run.timeline import Piece, cut, segments_of
from stepscope.model.recording import BETWEEN_STEPS, CallKind, Edge, Recording
from stepscope.model.run import (
    Engaged,
    Environment,
    MemoryCheckpoint,
    OutsideRun,
    Run,
    Span,
    StageRun,
    StepRun,
    Transfer,
    Workload,
)
from stepscope.model.vocabulary import UNMARKED, Outside

NOTHING_KNOWN = "no known call of the pipeline was seen: its stages and steps could not be told apart"

NOTHING_MARKED = (
    "nothing in this call was marked: with stepscope.stage(name) and stepscope.step(i) it has parts"
)


def assemble(
    recording: Recording,
    *,
    request_id: str,
    workload: Workload,
    environment: Environment,
    call_id: int = 0,
    engaged: Engaged | None = None,
) -> Run:
    """Make the run of a recording. ``total_ns`` is its own clock: the call's wall time without pauses."""
    pieces = cut(recording)
    occurrence = occurrences(pieces)
    stages = stage_runs(recording, pieces, occurrence)
    steps, warnings = number_steps(recording, pieces, occurrence)
    known = any(stage.calls for stage in stages)
    wall_ns = recording.ends.device_done_ns - recording.ends.start_ns
    run = Run(
        request_id=request_id,
        call_id=call_id,
        clock=recording.clock,
        environment=environment,
        workload=workload,
        created_unix_ns=recording.created_unix_ns,
        anchors=recording.anchors,
        ends=recording.ends,
        total_ns=wall_ns - sum(pause.duration_ns for pause in recording.pauses),
        stages=stages,
        steps=tuple(mark_traced(recording, steps)),
        outside=(*recording.outside, *rests(recording)),
        pauses=tuple(pause for pause in recording.pauses if pause.reason != BETWEEN_STEPS),
        transfers=transfers(recording, pieces, occurrence),
        memory=checkpoints(recording, stages),
        memory_reason=recording.memory_reason,
        engaged=with_cached_steps(engaged or Engaged(), recording.cache, steps),
        step_cache=use_of(recording.cache, steps, recording.cached_forwards),
        cpu=recording.cpu,
        warnings=(*recording.warnings, *warnings, *(() if known else (_nothing(recording),))),
        incomplete_reason=recording.incomplete_reason,
    )
    return replace(run, warnings=(*run.warnings, *with_cpu_warning(run)))


def _nothing(recording: Recording) -> str:
    return NOTHING_MARKED if recording.block else NOTHING_KNOWN


def rests(recording: Recording) -> tuple[OutsideRun, ...]:
    """Pauses in which no profiler was at work but the engine: between the steps that it schedules."""
    return tuple(
        OutsideRun(
            name=Outside.ENGINE_SCHEDULING, host_start_ns=pause.host_start_ns, host_end_ns=pause.host_end_ns
        )
        for pause in recording.pauses
        if pause.reason == BETWEEN_STEPS
    )


def occurrences(pieces: list[Piece]) -> list[int]:
    """For each piece the stage occurrence it lies in; a pause or transfer lies in the one before it."""
    found: list[int] = []
    index, stage = -1, None
    for piece in pieces:
        if piece.stage is not None and piece.stage != stage:
            index, stage = index + 1, piece.stage
        found.append(max(index, 0))
    return found


def stage_runs(recording: Recording, pieces: list[Piece], occurrence: list[int]) -> tuple[StageRun, ...]:
    """One ``StageRun`` for each occurrence, in order."""
    grouped: dict[int, list[Piece]] = {}
    for piece, index in zip(pieces, occurrence, strict=True):
        if piece.stage is not None:
            grouped.setdefault(index, []).append(piece)
    stages = [
        StageRun(
            span=_span(recording, group[0].stage or "", group),
            stage_index=index,
            inferred_ns=sum(piece.duration_ns for piece in group if piece.inferred),
            calls=_calls(recording, group),
        )
        for index, group in grouped.items()
    ]
    return tuple(_with_memory(recording, stages))


def _span(recording: Recording, name: str, pieces: list[Piece]) -> Span:
    return Span(
        name=name,
        segments=segments_of(pieces),
        device=recording.device,
        stream=recording.stream,
        thread=recording.thread,
    )


def _calls(recording: Recording, pieces: list[Piece]) -> tuple[Span, ...]:
    """The known calls that own time in these pieces, outermost of the stage, in order."""
    grouped: dict[int, list[Piece]] = {}
    for piece in pieces:
        owner = next((call for call in piece.calls if recording.edges[call].stage == piece.stage), None)
        if owner is not None:
            grouped.setdefault(owner, []).append(piece)
    return tuple(_span(recording, recording.edges[call].name, group) for call, group in grouped.items())


def _with_memory(recording: Recording, stages: list[StageRun]) -> list[StageRun]:
    """Give each reading to the stage that it was taken at the end of.

    That is the last whose known calls had begun: the gap before the next call is the next stage's already.
    """
    for timed in recording.memory:
        at_end = timed.host_ns >= recording.end.host_ns
        begun = [
            index
            for index, stage in enumerate(stages)
            if (at_end and stage.span.name not in UNMARKED)
            or (stage.calls and stage.calls[0].segments[0].host_start_ns < timed.host_ns)
        ]
        if begun:
            stages[begun[-1]] = replace(stages[begun[-1]], memory=timed.reading)
    return stages


def checkpoints(recording: Recording, stages: tuple[StageRun, ...]) -> tuple[MemoryCheckpoint, ...]:
    """Readings by name: before_forward, after_<Stage> (the last occurrence's), after_forward."""
    named = {"before_forward": recording.memory_before}
    named |= {f"after_{stage.span.name}": stage.memory for stage in stages if stage.memory is not None}
    named["after_forward"] = recording.memory_after
    return tuple(
        MemoryCheckpoint(name=name, reading=reading) for name, reading in named.items() if reading is not None
    )


def mark_traced(recording: Recording, steps: list[StepRun]) -> list[StepRun]:
    """Mark the steps whose forwards a profiler recorded; the first of them is its warm-up.

    By the forwards: the pause in which a profiler stops lies at the beginning of the step that follows.
    """
    first = True
    marked = []
    for step in steps:
        spans = [forward.span for forward in step.forwards] or [step.span]
        traced = any(
            segment.host_start_ns < end and start < segment.host_end_ns
            for span in spans
            for segment in span.segments
            for start, end in recording.profiled
        )
        marked.append(replace(step, traced=traced, profiler_warmup=traced and first))
        first = first and not traced
    return marked


@dataclass(slots=True)
class _Moved:
    """All moves of one component in one direction, while they are summed."""

    count: int = 0
    bytes: int = 0
    exposed_ns: int = 0
    stream_ns: int = 0
    pinned: bool | None = None
    stages: frozenset[int] = frozenset()


def transfers(recording: Recording, pieces: list[Piece], occurrence: list[int]) -> tuple[Transfer, ...]:
    """Offload traffic. Exposed is the time that passed on the computing stream while a hook was at work."""
    exposed: dict[int, int] = {}
    stage_of: dict[int, int] = {}
    for piece, index in zip(pieces, occurrence, strict=True):
        if piece.owner is not None and recording.edges[piece.owner].kind is CallKind.TRANSFER:
            exposed[piece.owner] = exposed.get(piece.owner, 0) + piece.duration_ns
            stage_of.setdefault(piece.owner, index)
    sums: dict[tuple[str, str], _Moved] = {}
    for begin, edge in _ends_of_transfers(recording.edges):
        move = edge.move
        if move is None:
            continue
        moved = sums.setdefault((edge.component, move.kind), _Moved())
        moved.count += 1
        moved.bytes += move.bytes
        moved.exposed_ns += exposed.get(begin, 0)
        moved.stream_ns += exposed.get(begin, 0) if move.stream_ns is None else move.stream_ns
        moved.pinned = move.pinned
        moved.stages |= {stage_of.get(begin, 0)}
    return tuple(
        Transfer(
            component=component,
            kind=kind,  # type: ignore[arg-type]
            count=moved.count,
            bytes=moved.bytes,
            pinned=moved.pinned,
            duration_ns=moved.stream_ns,
            exposed_ns=moved.exposed_ns,
            stage_index=min(moved.stages) if len(moved.stages) == 1 else None,
        )
        for (component, kind), moved in sums.items()
    )


def _ends_of_transfers(edges: tuple[Edge, ...]) -> list[tuple[int, Edge]]:
    """``(index of the beginning, end)`` of each transfer."""
    open_calls: list[int] = []
    found = []
    for index, edge in enumerate(edges):
        if edge.entering:
            open_calls.append(index)
            continue
        begin = open_calls.pop()
        if edge.kind is CallKind.TRANSFER:
            found.append((begin, edge))
    return found
