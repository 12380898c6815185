"""When a request passed which point of its worker or client, until its record is written."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from stepscope.capture.engines.spool import ANSWER_S, the_spool
from stepscope.model.engine_record import CallRecord, ClientRecord, NamedTime

MOST_OPEN = 4096
"""Requests that may be under way at once; of more, the oldest are forgotten (they never ended)."""


@dataclass(slots=True)
class Open:
    """A request under way in a worker."""

    arrived_ns: int | None = None
    started_ns: int | None = None
    around: list[NamedTime] = field(default_factory=list)
    records: list[CallRecord] = field(default_factory=list)


class OpenRequests:
    """The requests that this worker has and has not finished."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # another thread may have had the lock

    def _reset(self) -> None:
        self._open: OrderedDict[str, Open] = OrderedDict()
        self._lock = threading.Lock()

    def arrived(self, request_id: str) -> None:
        """It has come into the worker's queue."""
        self._of(request_id).arrived_ns = time.perf_counter_ns()

    def started(self, request_id: str) -> None:
        """The worker begins with it."""
        self._of(request_id).started_ns = time.perf_counter_ns()

    def took(self, request_id: str, name: str, start_ns: int) -> None:
        """Something around the pipeline call that began at ``start_ns`` has ended."""
        self._of(request_id).around.append(
            NamedTime(name=name, start_ns=start_ns, end_ns=time.perf_counter_ns())
        )

    def ran(self, record: CallRecord) -> None:
        """Its pipeline call has ended; the record is written when the worker is done with it."""
        entry = self._of(record.request_id)
        entry.records.append(record)
        if entry.started_ns is None:  # nothing tells when this engine's worker begins and ends
            self.finished(record.request_id)

    def finished(self, request_id: str) -> None:
        """The worker is done: write what there is of it."""
        with self._lock:
            entry = self._open.pop(request_id, None)
        if entry is None:
            return
        ended_ns = time.perf_counter_ns() if entry.started_ns is not None else None
        for record in entry.records:
            the_spool().call(
                replace(
                    record,
                    arrived_ns=entry.arrived_ns,
                    started_ns=entry.started_ns,
                    ended_ns=ended_ns,
                    around=tuple(entry.around),
                )
            )
        if entry.records:
            the_spool().settle(ANSWER_S)

    def _of(self, request_id: str) -> Open:
        with self._lock:
            entry = self._open.setdefault(request_id, Open())
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return entry


@dataclass(slots=True)
class ClientCall:
    """A request at its client, from the call of the client's own function on."""

    request_id: str
    sent_ns: int = field(default_factory=time.perf_counter_ns)

    def received(self, error: BaseException | None) -> ClientRecord:
        """The answer is there."""
        spool = the_spool()
        return ClientRecord(
            request_id=self.request_id,
            pid=spool.pid,
            clock_offset_ns=spool.clock_offset_ns,
            sent_ns=self.sent_ns,
            received_ns=time.perf_counter_ns(),
            error=None if error is None else type(error).__name__,
        )
