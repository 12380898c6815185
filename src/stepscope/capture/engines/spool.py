"""Writes records from an observed process: in a thread of its own, bounded in memory and in files.

A request's worker puts a frozen record into a queue, and its answer waits a moment for the file. If the disk
cannot keep up, the newest record is dropped and counted; of more files than are kept the oldest go.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from stepscope.capture.engines.fault_log import say
from stepscope.model.encodable import encodable
from stepscope.model.engine_record import CallRecord, ClientRecord, ProcessRecord
from stepscope.model.spool_layout import CALLS, CLIENTS, PROCESSES, RUNNING

KEPT_RECORDS = 1000
"""Files of one kind that a process leaves; a server goes on for weeks."""
KEPT_TRACES = 50
"""Traced requests that a process leaves beside them, with what the profiler exported: many megabytes each,
and chosen by somebody, so a thousand requests later they are still there."""
MOST_QUEUED = {CALLS: 64, CLIENTS: 4096}
"""Records that wait to be written. A call's may be large; a client's is small, and an asynchronous client has
as many answers at once as it has requests under way."""
MOST_FAULTS = 100
"""Lines a process writes into the log; the first ones tell what is wrong."""
FLUSH_S = 5.0
"""How long a process that ends waits for its last records."""
SETTLE_S = 1.0
"""How long a request waits for the records of those before it; they are mostly written long since."""
ANSWER_S = 0.05
"""How long an answer waits for its own record (0.2 ms, if the disk keeps up): its worker may end next."""


class Spool:
    """The folder into which this process writes."""

    def __init__(self, folder: Path, *, kept: int = KEPT_RECORDS, kept_traces: int = KEPT_TRACES) -> None:
        self.folder = folder
        self.dropped = 0
        self._kept = kept
        self._kept_traces = kept_traces
        self._reset()
        for name in (CALLS, CLIENTS, PROCESSES, RUNNING):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def _reset(self) -> None:
        self.pid = os.getpid()
        self.clock_offset_ns = time.time_ns() - time.perf_counter_ns()
        self._faults = 0
        self._number = 0
        self._queue: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        self._queued = dict.fromkeys(MOST_QUEUED, 0)
        self._files: dict[str, deque[Path]] = {CALLS: deque(), CLIENTS: deque()}
        self._traced: deque[tuple[Path, Path]] = deque()  # the record and the profiler's export
        self._late = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """A forked child has no writer thread, and its records are its own."""
        self._reset()

    def next_number(self) -> int:
        """The number of the next call of this process, from 0."""
        with self._lock:
            number, self._number = self._number, self._number + 1
        return number

    def call(self, record: CallRecord) -> None:
        """Queue the record of a finished pipeline call."""
        self._put(CALLS, record)

    def client(self, record: ClientRecord) -> None:
        """Queue what the client saw of a request."""
        self._put(CLIENTS, record)

    def process(self, record: ProcessRecord) -> None:
        """Write at once which hook points were found: it must be there even if the process dies next."""
        self._write(self.folder / PROCESSES / f"{record.engine}-{self.pid}.json", record)

    def running(self, request_id: str | None) -> None:
        """Say which request this process is at, so that it is known if the process dies; None: none.

        A disk that is full now may have room when the request is done: it is a line in the log.
        """
        path = self.folder / RUNNING / str(self.pid)
        try:
            if request_id is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_text(request_id, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            self.fault("running", error)

    def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Wait until what was recorded is written: a process that is killed loses no more than it is at.

        A disk that was too slow once is not waited for again until it has caught up.
        """
        waiting = self._queue
        with waiting.all_tasks_done:
            if not self._late:
                waiting.all_tasks_done.wait_for(lambda: not waiting.unfinished_tasks, timeout_s)
            self._late = waiting.unfinished_tasks > 0

    def fault(self, where: str, error: Exception) -> None:
        """A line for a fault of ours. Never raises, and stops when it has said enough."""
        self._faults += 1
        if self._faults <= MOST_FAULTS:
            self.say(f"{where}: {type(error).__name__}: {error}")

    def say(self, line: str) -> None:
        """A line into the log; nothing if it cannot be written."""
        say(self.folder, line)

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Write what is queued and stop the thread; a disk that hangs is waited for so long and no longer."""
        if self._thread is None or os.getpid() != self.pid:
            return
        until = time.monotonic() + timeout_s
        self._queue.put(None)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self.say(f"some {self._queue.qsize()} records could not be written in {timeout_s:g} s at the end")
        self._thread = None
        if self.dropped:
            self.say(f"{self.dropped} records were dropped: they came faster than they could be written")

    def _put(self, kind: str, record: Any) -> None:
        with self._lock:
            if self._thread is None:
                self._start()
            if self._queued[kind] >= MOST_QUEUED[kind]:
                self.dropped += 1
                return
            self._queued[kind] += 1
        self._queue.put((kind, record))

    def _start(self) -> None:
        """Start the writer, and see that it is waited for however this process ends by itself.

        A forked process of multiprocessing leaves through ``os._exit``: nothing registered with ``atexit``
        runs, only multiprocessing's own finalizers, less those from before the fork.
        """
        self._thread = threading.Thread(target=self._work, name="stepscope-spool", daemon=True)
        self._thread.start()
        Finalize(None, self.close, exitpriority=0)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            kind, record = item
            with self._lock:
                self._queued[kind] -= 1
            try:
                self._keep(kind, record)
            except Exception as error:
                self.fault("spool", error)
            finally:
                self._queue.task_done()
        self._queue.task_done()  # the word to stop

    def _keep(self, kind: str, record: Any) -> None:
        files = self._files[kind]
        path = self.folder / kind / f"{self.pid}-{time.perf_counter_ns():020d}.json"
        self._write(path, record)
        raw = record.raw_trace if isinstance(record, CallRecord) else None
        if raw is not None:
            self._keep_traced(path, Path(raw.path))
            return
        files.append(path)
        if len(files) > self._kept:
            files.popleft().unlink(missing_ok=True)

    def _keep_traced(self, path: Path, raw: Path) -> None:
        self._traced.append((path, raw))
        if len(self._traced) > self._kept_traces:
            for old in self._traced.popleft():
                old.unlink(missing_ok=True)

    def _write(self, path: Path, record: Any) -> None:
        temporary = path.with_name(f".{path.name}.tmp")
        content = encoded(record)
        try:
            if not path.parent.is_dir():  # it was emptied; a folder that is gone is not made again
                path.parent.mkdir()
            temporary.write_bytes(content)
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()  # half of it takes room on a full disk
            raise


def encoder() -> Callable[[Any], bytes]:
    """Msgspec's where the engine has it (SGLang and vLLM do): some 50 times faster than the other."""
    try:
        import msgspec
    except ImportError:
        return lambda record: json.dumps(asdict(record), ensure_ascii=False).encode()
    return msgspec.json.encode


def encoded(record: Any) -> bytes:
    """A record as JSON; text that is no UTF-8 (a client may send such a prompt) is written with escapes."""
    try:
        return encoder()(record)
    except UnicodeEncodeError:
        return json.dumps(encodable(asdict(record))).encode()


_current: list[Spool] = []


def open_spool(folder: Path) -> Spool:
    """The spool of this process, made by the first who asks."""
    if not _current:
        spool = Spool(folder)
        os.register_at_fork(after_in_child=spool.after_fork)
        _current.append(spool)
    return _current[0]


def the_spool() -> Spool:
    """The spool of this process; LookupError where none was set (hooks are only installed with one)."""
    if not _current:
        message = "no spool in this process"
        raise LookupError(message)
    return _current[0]
