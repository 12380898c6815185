"""A process that keeps one pipeline loaded and runs it when told to; bench and sweep drive it.

One JSON object a line: ``load``, ``warm_up`` and ``run`` come in on standard input, one reply each goes out
on standard output. Whatever libraries print goes to standard error. When standard input ends, whoever drove
us is gone, and so are we, in the middle of a run if need be: an orphan would disturb what comes after it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from stepscope.model.errors import StepscopeError
from stepscope.session.worker_messages import Command, Failure, Reply

if TYPE_CHECKING:
    from stepscope.model.run import Environment, Warmup
    from stepscope.session.generate_options import GenerateOptions
    from stepscope.workload.request import Loaded


class PipelineWorker:
    """One loaded pipeline and what has been done with it."""

    def __init__(self, options: GenerateOptions) -> None:
        from stepscope.capture.environment import read_environment
        from stepscope.capture.gpu_watch import current_gpu_uuid
        from stepscope.session.warmup import not_warmed_up
        from stepscope.workload.load import load

        self._loaded: Loaded = load(options.load)
        _hide_bars(self._loaded.pipeline)
        self._environment: Environment = read_environment(self._loaded.device)
        self._warmup: Warmup = not_warmed_up("none was asked for")
        self.gpu_uuid = current_gpu_uuid(self._loaded.device)

    def warm_up(self, options: GenerateOptions) -> None:
        """Run the request with few steps until nothing is done that a call does once."""
        from stepscope.session.warmup import warm_up

        self._warmup = warm_up(
            self._loaded,
            options.requests[0],
            self._environment,
            steps=options.warmup.steps,
            at_most=options.warmup.at_most,
            about_to_run=lambda number, at_most: None,  # noqa: ARG005 (the names are the protocol's)
        )

    def run(self, options: GenerateOptions) -> BaseException | None:
        """Run the request observed, write its files, and return what it failed with, if it did."""
        import uuid

        from stepscope.session.destinations import destinations
        from stepscope.session.keep import Finished, keep
        from stepscope.session.observe import ObserveOptions, observe_call
        from stepscope.workload.arguments import call_arguments
        from stepscope.workload.describe import describe

        request, loaded = options.requests[0], self._loaded
        arguments = call_arguments(loaded.pipeline, request, loaded.defaults)
        observed = observe_call(
            loaded.pipeline,
            lambda: loaded.pipeline(**arguments),
            request_id=str(uuid.uuid4()),
            workload=describe(loaded, request, arguments),
            environment=self._environment,
            options=ObserveOptions(own_process=True),
        )
        run = replace(observed.run, warmup=self._warmup, warnings=(*loaded.notes, *observed.run.warnings))
        finished = Finished(
            observed=replace(observed, run=run),
            request=request,
            loaded=loaded,
            output=options.output,
            places=destinations(options, 0),
        )
        return keep(finished).error


def main() -> int:
    """Serve commands until standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    commands: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read_commands, args=(sys.stdin.buffer, commands), daemon=True).start()
    worker: PipelineWorker | None = None
    while True:
        command = msgspec.json.decode(commands.get(), type=Command)
        reply, worker = _serve(command, worker)
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()


def _serve(command: Command, worker: PipelineWorker | None) -> tuple[Reply, PipelineWorker | None]:
    """Do one command; an exception is a reply, so that the next point can still run."""
    from stepscope.session.generate_flags import options_of

    try:
        options = options_of(command.flags)  # type: ignore[arg-type]  # made by the parser of generate
        if worker is None or command.do == "load":
            worker = PipelineWorker(options)
        if command.do == "warm_up":
            worker.warm_up(options)
        error = worker.run(options) if command.do == "run" else None
    except Exception as raised:
        error = raised
    gpu_uuid = worker.gpu_uuid if worker is not None else None
    return Reply(gpu_uuid=gpu_uuid, failure=None if error is None else _failure(error)), worker


def _failure(error: BaseException) -> Failure:
    traceback.print_exception(error, file=sys.stderr)
    memory = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    text = str(error) if isinstance(error, StepscopeError) else f"{type(error).__name__}: {error}"
    return Failure(
        message=" ".join(text.split())[:500],
        out_of_memory=memory,
        usable_after=memory or isinstance(error, StepscopeError),
    )


def _read_commands(stream: BinaryIO, commands: queue.Queue[bytes]) -> None:
    for line in stream:
        commands.put(line)
    os._exit(0)


def _hide_bars(pipeline: Any) -> None:
    if hasattr(pipeline, "set_progress_bar_config"):
        pipeline.set_progress_bar_config(disable=True)


if __name__ == "__main__":
    raise SystemExit(main())
