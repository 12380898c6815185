"""What is known of each forward beside its time: its name, and how much of it a step cache let compute."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.capture.active import ActiveCall, CacheUnits, Event, Ran
from stepscope.model.recording import CallKind
from stepscope.model.vocabulary import StepWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardTold:
    """What was noted of one forward. ``work`` is None where its denoiser has no step cache."""

    label: str | None = None
    work: StepWork | None = None


UNTOLD = ForwardTold()


def forwards_told(call: ActiveCall, events: Sequence[Event]) -> dict[int, ForwardTold]:
    """By the identity of the event with which a forward began."""
    if not call.labels and not call.units:
        return {}
    label_places = [place for place, _ in call.labels]
    ran_places = [place for place, _ in call.computed]
    found = {}
    for begin, end in _forwards(events):
        known, _, _, batch = events[begin]
        at = bisect_right(label_places, begin)
        ran = call.computed[bisect_left(ran_places, begin + 1) : bisect_right(ran_places, end)]
        units = call.units.get(known.component)
        found[id(events[begin])] = ForwardTold(
            label=call.labels[at - 1][1] if at else None,
            work=None if units is None else work_of(units, known.component, [item for _, item in ran], batch),
        )
    return found


def _forwards(events: Sequence[Event]) -> list[tuple[int, int]]:
    """Where each forward begins and ends; one that never ended goes to the last event."""
    open_at: list[int] = []
    found = []
    for index, (known, entering, _, _) in enumerate(events):
        if entering:
            open_at.append(index)
            continue
        begin = open_at.pop()
        if known.kind is CallKind.FORWARD:
            found.append((begin, index))
    unfinished = [index for index in open_at if events[index][0].kind is CallKind.FORWARD]
    return found + [(index, len(events)) for index in unfinished]


def work_of(units: CacheUnits, component: str, ran: Sequence[Ran], batch: int | None) -> StepWork:
    """How much of a forward was computed.

    All parts with the whole batch: computed. None, where whole blocks can be skipped: skipped. Else partly.
    Without any part at work in a cache that only replaces attention, the rest of each block still ran.
    """
    mine = [item for item in ran if item.component == component]
    computed = sum(item.batch is None for item in mine)
    halved = any(item.batch is not None and batch is not None and item.batch < batch for item in mine)
    if computed >= units.count and not halved:
        return StepWork.COMPUTED
    return StepWork.SKIPPED if computed == 0 and units.blocks else StepWork.PARTLY_COMPUTED
