"""From a live call's list to a frozen ``Recording``: device events resolved, brackets matched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import Any

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
    events, overlapped = balanced(raw, end)
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
        warnings=(*([trouble] if trouble else ()), *([OVERLAPPED] if overlapped else ())),
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


OVERLAPPED = (
    "marks ended in another order than they began, as those of several asyncio tasks or of a generator do:"
    " time in which several were open is that of the one begun last"
)


def balanced(events: list[Event], end: Mark) -> tuple[list[Event], bool]:
    """The events with every bracket closed once and inside those that were open, and whether any was not.

    A call whose end fell into a graph capture has no mark there and is dropped: its time stays with the call
    around it. One that never ended (a thread that was killed) ends with the recording. One that ended before
    a later one ends with that: nothing of the time between is its own, which is the innermost's.
    """
    return (events, False) if _are_balanced(events) else _mended(events, end)


def _are_balanced(events: list[Event]) -> bool:
    """Whether they nest like brackets as they are: nearly always, so this is what a call pays for."""
    open_calls: list[Any] = []
    for known, entering, mark, _ in events:
        if entering:
            open_calls.append(known)
        elif mark is None or not open_calls or open_calls.pop() is not known:
            return False
    return not open_calls


def _mended(events: list[Event], end: Mark) -> tuple[list[Event], bool]:
    open_at: list[int] = []
    waiting: dict[int, Any] = {}  # ended beneath an open one: what its end had to say
    dropped: set[int] = set()
    after: dict[int, list[Event]] = {}
    for index, (known, entering, mark, detail) in enumerate(events):
        if entering:
            open_at.append(index)
            continue
        begin = next((at for at in reversed(open_at) if at not in waiting and events[at][0] is known), None)
        if begin is None:  # left and never entered
            dropped.add(index)
        elif mark is None:
            dropped |= {begin, index}
            open_at.remove(begin)
        elif begin != open_at[-1]:
            dropped.add(index)
            waiting[begin] = detail
        else:
            open_at.pop()
            while open_at and open_at[-1] in waiting:
                inner = open_at.pop()
                after.setdefault(index, []).append((events[inner][0], False, mark, waiting[inner]))
    closing: list[Event] = [(events[at][0], False, end, waiting.get(at)) for at in reversed(open_at)]
    kept = (
        [*([] if index in dropped else [event]), *after.get(index, ())] for index, event in enumerate(events)
    )
    return [*chain.from_iterable(kept), *closing], bool(waiting)


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
