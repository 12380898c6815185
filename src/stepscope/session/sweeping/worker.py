"""A process that keeps one pipeline loaded and runs it when told to; bench and sweep drive it.

One JSON object a line: ``load``, ``check`` and ``run`` come in on standard input, a reply each on standard
output. Whatever libraries print goes to standard error. When standard input ends, whoever drove us is gone,
and so are we, in the middle of a run if need be: an orphan would disturb what comes after it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from stepscope.model.encodable import encodable
from stepscope.model.errors import StepscopeError, UsageError, is_out_of_memory
from stepscope.session.sweeping.worker_messages import Command, Failure, Reply, decoded

if TYPE_CHECKING:
    from stepscope.session.generate_options import GenerateOptions
    from stepscope.workload.request import Loaded


def main() -> int:
    """Serve commands until standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    commands: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read_commands, args=(sys.stdin.buffer, commands), daemon=True).start()
    server = _Server()
    while True:
        reply = server.serve(decoded(commands.get()))
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()


class _Server:
    """The loaded pipeline, once there is one."""

    def __init__(self) -> None:
        self._loaded: Loaded | None = None
        self._gpu_uuid: str | None = None

    def serve(self, command: Command) -> Reply:
        """Do one command; an exception is a reply, so that the next point can still run."""
        from stepscope.session.generate_flags import options_of

        try:
            options = options_of(command.flags)  # type: ignore[arg-type]  # made by generate's own parser
            loaded = self._loaded or self._load(options)
            if command.do == "check":
                _check(loaded, options)
            error = _run(loaded, options) if command.do == "run" else None
        except (Exception, SystemExit) as raised:
            error = raised
        return Reply(gpu_uuid=self._gpu_uuid, failure=None if error is None else _failure(error))

    def _load(self, options: GenerateOptions) -> Loaded:
        from stepscope.capture.gpu_watch import current_gpu_uuid
        from stepscope.workload.load import load

        self._loaded = load(options.load)
        self._gpu_uuid = current_gpu_uuid(self._loaded.device)
        return self._loaded


def _run(loaded: Loaded, options: GenerateOptions) -> BaseException | None:
    """Run the request, write its files, and return what it failed with, if it did."""
    from stepscope.session.generate import generate_with
    from stepscope.session.generate_options import SilentListener

    return generate_with(loaded, options, SilentListener())[-1].error


def _check(loaded: Loaded, options: GenerateOptions) -> None:
    """Raise UsageError for what the pipeline cannot take, without running it."""
    from stepscope.workload.arguments import call_arguments

    for request in options.requests:
        call_arguments(loaded.pipeline, request, loaded.defaults)


def _failure(error: BaseException) -> Failure:
    traceback.print_exception(error, file=sys.stderr)
    known = isinstance(error, (MemoryError, StepscopeError)) or type(error).__name__ == "OutOfMemoryError"
    text = str(error) if isinstance(error, StepscopeError) else f"{type(error).__name__}: {error}"
    return Failure(
        message=encodable(" ".join(text.split())[:500]),
        out_of_memory=is_out_of_memory(error),
        refused=isinstance(error, UsageError),
        usable_after=known,  # anything else may have left the device in a bad state
    )


def _read_commands(stream: BinaryIO, commands: queue.Queue[bytes]) -> None:
    for line in stream:
        commands.put(line)
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
