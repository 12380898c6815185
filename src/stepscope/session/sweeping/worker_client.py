"""The parent's end of a worker process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stepscope.model.errors import RunFailedError
from stepscope.record.atomic import cannot_write
from stepscope.session.sweeping.worker_messages import Command, Failure, Reply, encoded

WORKER_COMMAND = (sys.executable, "-m", "stepscope.session.sweeping.worker")


class WorkerDied(RunFailedError):  # noqa: N818 (it says what happened)
    """The worker process ended in the middle of something."""


def _opened(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    except OSError as error:
        raise cannot_write(log, error) from error


class WorkerClient:
    """One worker process; use it as a context manager, so that it never outlives its work.

    ``log`` gets everything that the worker prints; RunFailedError where it cannot be written. ``command`` is
    another program in tests.
    """

    def __init__(self, log: Path, *, command: Sequence[str] = WORKER_COMMAND) -> None:
        self._log = log
        with _opened(log) as stream:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream
            )
        self.gpu_uuid: str | None = None

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def ask(self, do: str, flags: Mapping[str, Any]) -> Failure | None:
        """Have one thing done; None where it was, else what went wrong.

        Raises:
            WorkerDied: the process ended before it answered.

        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        try:
            self._process.stdin.write(encoded(Command(do=do, flags=dict(flags))))
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            pass  # told below, with how it ended
        if not line.endswith(b"\n"):
            raise WorkerDied(
                f"the worker process ended ({self._ending()}) while it was to {do}.",
                remedy=f"What it printed is in {self._log}.",
            )
        reply = msgspec.json.decode(line, type=Reply)
        self.gpu_uuid = reply.gpu_uuid
        return reply.failure

    def close(self) -> None:
        """End the process: it is told by the end of its input, and killed if it does not listen."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=10)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ending(self) -> str:
        status = self._process.wait()
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"
