"""Where a request's wall time went around its pipeline call: client, transfers, queue and worker."""

from __future__ import annotations

from stepscope.model.engine_record import CallRecord, ClientRecord
from stepscope.model.run import OutsideRun
from stepscope.model.vocabulary import Outside

SAME_CLOCK_NS = 1_000_000
"""Processes whose wall clock less monotonic clock differ by more share no clock: another machine."""


def around(call: CallRecord, client: ClientRecord | None) -> tuple[OutsideRun, ...]:
    """What lies around the pipeline call, in order of time; with it, all of the client's wall time.

    A point that was not seen joins the times beside it: without an arrival the queue is part of the transfer.
    """
    ends = call.recording.ends
    spans: list[tuple[str, int | None, int | None]] = []
    started, ended = call.started_ns, call.ended_ns
    if client is not None and shared_clock(call, client):
        arrived = call.arrived_ns or started or ends.start_ns
        finished = ended or ends.device_done_ns
        spans += [
            (Outside.CLIENT, client.called_ns, client.sent_ns),
            (Outside.REQUEST_TRANSFER, client.sent_ns, arrived),
            (Outside.RESULT_TRANSFER, finished, client.received_ns),
            (Outside.CLIENT, client.received_ns, client.returned_ns),
        ]
    spans.append((Outside.QUEUE_WAIT, call.arrived_ns, started or ends.start_ns))
    spans += [(item.name, item.start_ns, item.end_ns) for item in call.around]
    spans += worker_spans(call)
    found = [
        OutsideRun(name=str(name), host_start_ns=start, host_end_ns=end)
        for name, start, end in spans
        if start is not None and end is not None and end > start
    ]
    return tuple(sorted(found, key=lambda item: item.host_start_ns))


def worker_spans(call: CallRecord) -> list[tuple[str, int | None, int | None]]:
    """The worker's own time: what is left of it beside the pipeline call and what has a name."""
    if call.started_ns is None or call.ended_ns is None:
        return []
    ends = call.recording.ends
    taken = sorted(
        [(ends.start_ns, ends.device_done_ns), *((item.start_ns, item.end_ns) for item in call.around)]
    )
    left = []
    here = call.started_ns
    for start, end in taken:
        left.append((Outside.WORKER.value, here, start))
        here = max(here, end)
    left.append((Outside.WORKER.value, here, call.ended_ns))
    return [(name, start, end) for name, start, end in left]


def shared_clock(call: CallRecord, client: ClientRecord) -> bool:
    """Whether the times of both may be put on one line."""
    return abs(call.clock_offset_ns - client.clock_offset_ns) < SAME_CLOCK_NS


def wall_ns(client: ClientRecord) -> int:
    """The client's wall time: of its own call where that was seen, else from sending to the answer."""
    return (client.returned_ns or client.received_ns) - (client.called_ns or client.sent_ns)


def missing_ns(call: CallRecord, client: ClientRecord) -> int:
    """The part of the client's wall time that is in no outside stage and not in the pipeline call."""
    ends = call.recording.ends
    named = sum(item.duration_ns for item in around(call, client))
    return wall_ns(client) - named - (ends.device_done_ns - ends.start_ns)
