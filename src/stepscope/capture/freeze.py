"""From a live call's list to a frozen ``Recording``: device events resolved, brackets matched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from stepscope.capture.active import ActiveCall, Event
from stepscope.capture.clock import DeviceClock, Mark
from stepscope.capture.offload import Moved, component_of, owners, settle
from stepscope.model.recording import STAGE_OF, CallKind, Edge, Moment, Recording
from stepscope.model.run import Anchor, ThreeEnds
from stepscope.model.vocabulary import ClockKind


def freeze(
    call: ActiveCall, *, start: Mark, end: Mark, ends: ThreeEnds, anchor: Anchor, incomplete: str | None
) -> Recording:
    """Resolve the marks and freeze the call. The device has been waited for."""
    raw = call.events
    labels = labels_told(call.labels, raw)
    events = balanced(raw, end)
    marks = [start, *(mark for _, _, mark, _ in events if mark is not None), end]
    moments, trouble = resolve(call.clock, marks)
    moves = any(isinstance(detail, Moved) for *_, detail in events)
    owner = owners(call.modules) if moves else {}
    call.clock.release({id(mark): mark for mark in marks}.values())  # closing brackets share the last
    return Recording(
        clock=call.clock.description,
        start=moments[0],
        end=moments[-1],
        ends=ends,
        edges=tuple(
            _edge(event, moment, owner, call.clock, labels.get(id(event)))
            for event, moment in zip(events, moments[1:-1], strict=True)
        ),
        pauses=tuple(call.pauses),
        profiled=tuple(call.profiled),
        anchors=(anchor,),
        device=call.clock.device,
        stream=call.stream,
        thread=call.thread,
        warnings=(trouble,) if trouble else (),
        incomplete_reason=incomplete,
        block=call.adopt is not None,
        created_unix_ns=anchor.unix_ns,
        graph_replays=call.graph_replays,
    )


def labels_told(told: Sequence[tuple[int, str | None]], events: Sequence[Event]) -> dict[int, str | None]:
    """What the pipeline called each forward, by the identity of the event with which it began."""
    if not told:
        return {}
    places = [place for place, _ in told]
    found = {}
    for index, event in enumerate(events):
        known, entering, *_ = event
        at = bisect_right(places, index)
        if entering and known.kind is CallKind.FORWARD and at:
            found[id(event)] = told[at - 1][1]
    return found


def resolve(clock: DeviceClock, marks: list[Mark]) -> tuple[list[Moment], str | None]:
    """Device times of all marks; if the device cannot tell them, host times and the reason."""
    try:
        device_ns = clock.resolve(marks)
    except RuntimeError as error:  # after a device-side failure events cannot be read
        device_ns = [None] * len(marks)
        return _moments(marks, device_ns), f"device times are lost: {error}"
    lost = clock.description.kind is ClockKind.DEVICE_EVENTS and None in device_ns
    return _moments(marks, device_ns), "some device times are missing" if lost else None


def _moments(marks: list[Mark], device_ns: list[int | None]) -> list[Moment]:
    return [Moment(host_ns, device) for (host_ns, _), device in zip(marks, device_ns, strict=True)]


def balanced(events: list[Event], end: Mark) -> list[Event]:
    """The events with every bracket closed once.

    A call whose end fell into a graph capture has no mark there and is dropped: its time stays with the call
    around it. One that never ended (a thread that was killed) ends with the recording.
    """
    open_at: list[int] = []
    dropped: set[int] = set()
    for index, (_, entering, mark, _) in enumerate(events):
        if entering:
            open_at.append(index)
        else:
            begin = open_at.pop()
            if mark is None:
                dropped |= {begin, index}
    closing: list[Event] = [(events[index][0], False, end, None) for index in reversed(open_at)]
    return [event for index, event in enumerate(events) if index not in dropped] + closing


def _edge(event: Event, at: Moment, owner: dict[int, str], clock: DeviceClock, label: str | None) -> Edge:
    known, entering, _, detail = event
    stage = STAGE_OF.get(known.kind)
    moved = detail if isinstance(detail, Moved) else None
    return Edge(
        kind=known.kind,
        entering=entering,
        at=at,
        component=known.component if moved is None else component_of(moved.plan, owner),
        method=known.method,
        stage=known.stage or (stage.value if stage else None),
        batch=detail if entering and known.kind is CallKind.FORWARD else None,
        label=label,
        solver_order=known.solver_order,
        move=None if moved is None else settle(moved, clock),
    )
