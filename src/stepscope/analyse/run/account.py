"""Where a request's wall time went around its pipeline call: client, transfers, queue and worker."""

from __future__ import annotations

from stepscope.model.engine_record import CallRecord, ClientRecord
from stepscope.model.run import OutsideRun
from stepscope.model.vocabulary import Outside

Named = tuple[str, int | None, int | None]
"""A name, start and end; None: that point was not seen."""
SAME_CLOCK_NS = 1_000_000
"""Processes whose wall clock less monotonic clock differ by more share no clock: another machine."""


def around(call: CallRecord, client: ClientRecord | None) -> tuple[OutsideRun, ...]:
    """What lies around the pipeline call, in order of time; with it, all of the client's wall time.

    A point that was not seen joins the times beside it: without an arrival the queue is part of the transfer.
    """
    spans: list[Named] = [
        (Outside.QUEUE_WAIT.value, call.arrived_ns, call.started_ns or call.recording.ends.start_ns)
    ]
    spans += [(item.name, item.start_ns, item.end_ns) for item in call.around]
    spans += worker_spans(call)
    if client is not None and shared_clock(call, client):
        spans += client_spans(call, client)
    found = [
        OutsideRun(name=name, host_start_ns=start, host_end_ns=end)
        for name, start, end in spans
        if start is not None and end is not None and end > start
    ]
    return tuple(sorted(found, key=lambda item: item.host_start_ns))


def client_spans(call: CallRecord, client: ClientRecord) -> list[Named]:
    """The client's side: its own time, its queue, and both ways between it and the worker."""
    ends = call.recording.ends
    begun = call.started_ns or ends.start_ns
    sent = client.sent_ns if client.dispatched_ns is None else client.dispatched_ns
    after = [(item.start_ns, item.end_ns) for item in client.around]
    return [
        (Outside.CLIENT.value, client.called_ns, client.sent_ns),
        (Outside.QUEUE_WAIT.value, client.sent_ns, client.dispatched_ns),
        (Outside.REQUEST_TRANSFER.value, sent, call.arrived_ns or begun),
        (Outside.RESULT_TRANSFER.value, call.ended_ns or ends.device_done_ns, client.received_ns),
        *((item.name, item.start_ns, item.end_ns) for item in client.around),
        *left(Outside.CLIENT, client.received_ns, client.returned_ns, after),
    ]


def worker_spans(call: CallRecord) -> list[Named]:
    """The worker's own time: what is left of it beside the pipeline call and what has a name."""
    if call.started_ns is None or call.ended_ns is None:
        return []
    ends = call.recording.ends
    taken = [(ends.start_ns, ends.device_done_ns), *((item.start_ns, item.end_ns) for item in call.around)]
    taken += [(item.host_start_ns, item.host_end_ns) for item in call.recording.outside]
    return left(Outside.WORKER, call.started_ns, call.ended_ns, taken)


def left(name: Outside, start: int, end: int | None, taken: list[tuple[int, int]]) -> list[Named]:
    """What ``taken`` leaves of the time from ``start`` to ``end``."""
    if end is None:
        return []
    found: list[Named] = []
    here = start
    for begin, finish in sorted(taken):
        found.append((name.value, here, begin))
        here = max(here, finish)
    return [*found, (name.value, here, end)]


def shared_clock(call: CallRecord, client: ClientRecord) -> bool:
    """Whether the times of both may be put on one line."""
    return abs(call.clock_offset_ns - client.clock_offset_ns) < SAME_CLOCK_NS


def wall_ns(client: ClientRecord) -> int:
    """The client's wall time: of its own call where that was seen, else from sending to the answer.

    What the client does with the answer before it is handed on (``client.around``) is part of it.
    """
    answered_ns = max([client.received_ns, *(item.end_ns for item in client.around)])
    return (client.returned_ns or answered_ns) - (client.called_ns or client.sent_ns)


def missing_ns(call: CallRecord, client: ClientRecord) -> int:
    """The part of the client's wall time that is in no outside stage and not in the pipeline call."""
    ends = call.recording.ends
    named = sum(item.duration_ns for item in (*call.recording.outside, *around(call, client)))
    return wall_ns(client) - named - (ends.device_done_ns - ends.start_ns)
