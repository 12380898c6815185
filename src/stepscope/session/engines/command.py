"""``stepscope run -- COMMAND``: any command, its Python processes observed, and what they recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stepscope.capture.engines.adapters import ADAPTERS, adapter_of
from stepscope.capture.inject.settings import injected
from stepscope.model.engine_record import UNKNOWN_VERSION, ProcessRecord
from stepscope.model.errors import RunFailedError, UsageError
from stepscope.model.spool_layout import CONTROL
from stepscope.record.atomic import check_writable, write_atomic
from stepscope.record.spool_reader import SpoolContent, read_spool
from stepscope.session.engines.collect import Destination, ObservedRequest, collect

NOT_OBSERVED = (
    "no process of the command could be observed: it ran no Python, or Python with -I, -E or -S, or with an"
    " environment of its own"
)
NO_ENGINE = (
    "Python was observed, but no process imported an engine that stepscope knows (SGLang Diffusion,"
    " vLLM-Omni): is it installed in that environment? Or did its process get an environment of its own?"
    " For a script that calls diffusers itself: stepscope run SCRIPT"
)
FILTERED = (
    "stepscope is not installed beside the engine, or a plugin filter (SGLANG_PLUGINS, VLLM_PLUGINS) leaves"
    " stepscope out"
)
"""Why an engine that was started with the variable STEPSCOPE alone may not have been observed."""
NOTHING_RECORDED = f"no process has recorded here: no engine has run yet, {FILTERED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """Which steps of the requests to trace; ``next`` of them, or every one where it is None."""

    steps: int = 5
    all_stages: bool = False
    next: int | None = None
    request_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How the command ended and what was seen of it."""

    status: int  # the command's own; 128 and the signal's number where it was killed
    requests: tuple[ObservedRequest, ...]
    content: SpoolContent
    problems: tuple[str, ...] = field(default=())


def run_command(
    command: Sequence[str], to: Destination, tracing: Tracing | None, spool: Path | None = None
) -> CommandOutcome:
    """Run a command with its processes observed, and put together what they recorded.

    The command keeps our terminal and gets our interrupts. ``spool`` keeps the records; without one they go
    when everything is written.

    Raises:
        UsageError: there is no such command.
        RunFailedError: the folder for the records cannot be made or written.

    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]}: no such command.", remedy="Give a program on PATH or its path.")
    with _folder(spool) as folder:
        if tracing is not None:
            set_tracing(folder, tracing)
        status = _wait([program, *command[1:]], injected(os.environ, folder))
        problems = [*_no_room(folder)]
        content = read_spool(folder)
        problems += content.problems
        requests = collect(content, to, problems.append)
        return CommandOutcome(
            status=status,
            requests=requests,
            content=content,
            problems=(*problems, *trouble(content)),
        )


@contextmanager
def _folder(spool: Path | None) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            if spool is None:
                temporary = tempfile.TemporaryDirectory(prefix="stepscope-", ignore_cleanup_errors=True)
                spool = Path(stack.enter_context(temporary))
            spool.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            named = spool or "a folder for temporary files"
            raise RunFailedError(f"cannot make {named}: {error.strerror}.") from error
        check_writable(spool)
        yield spool


def _no_room(folder: Path) -> Iterator[str]:
    """Why records may be missing: what could not write them could not say so either."""
    try:
        check_writable(folder)
    except RunFailedError as error:
        yield f"records may be missing: {error}"


def _wait(command: list[str], environment: dict[str, str]) -> int:
    """Run to the end. Ctrl-C goes to the command (it has our terminal); a termination is handed on."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}.") from error
    before = signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
    terminate = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminate)
    return status if status >= 0 else 128 - status


def set_tracing(folder: Path, tracing: Tracing | None) -> None:
    """Tell the processes that write into ``folder`` which requests to trace from now on; None: none.

    Raises:
        RunFailedError: the control file cannot be written.

    """
    path = folder / CONTROL
    if tracing is None:
        path.unlink(missing_ok=True)
        return
    every = tracing.next is None and not tracing.request_ids
    asked = {
        "steps": tracing.steps,
        "all_stages": tracing.all_stages,
        "every": every,
        "next": tracing.next or 0,
        "request_ids": tracing.request_ids,
    }
    write_atomic(path, json.dumps(asked).encode())


def trouble(content: SpoolContent, *, unseen: str = NOT_OBSERVED) -> Iterator[str]:
    """What must be said: hook points gone, versions not tested, requests cut off, faults of ours.

    ``unseen`` is the sentence for no process at all.
    """
    if not content.processes:
        yield NO_ENGINE if content.started else unseen
    elif not content.calls:
        yield f"an engine was found, but no pipeline call of it was seen{_never_reached(content)}"
    yield from dict.fromkeys(line for process in content.processes if (line := _hooks_of(process)))
    for pid, request_id in content.unfinished:
        if not alive(pid):
            yield f"process {pid} ended in the middle of request {request_id}"
    yield from (f"stepscope's own fault, the engine was not disturbed: {line}" for line in content.log)


def _never_reached(content: SpoolContent) -> str:
    """The hook points of the engines found that no process has come to: modules gone, or not needed yet."""
    engines = {process.engine for process in content.processes}
    seen = {point for process in content.processes for point in (*process.found, *process.missing)}
    points = (
        f"{hook.module}.{hook.method}"
        for adapter in map(adapter_of, ADAPTERS)
        if adapter.engine in engines
        for hook in adapter.hooks
    )
    left = [point for point in points if point not in seen]
    return f"; never imported: {', '.join(left)}" if left else ""


def _hooks_of(process: ProcessRecord) -> str:
    """What must be said of the hook points of an engine in one process; empty if nothing."""
    version = "of unknown version" if process.version == UNKNOWN_VERSION else process.version
    name, tested = f"{process.engine} {version}", ", ".join(process.tested)
    if process.missing:
        return f"{name}: hook points not found (tested with {tested}): {', '.join(process.missing)}"
    if process.version not in process.tested:
        return f"{name} is outside the tested range ({tested}); every hook point was found"
    return ""


def alive(pid: int) -> bool:
    """Whether a process of this number runs; one that has ended and is waited for by nobody does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _ended(pid)


def _ended(pid: int) -> bool:
    """Whether it is a zombie, where ``/proc`` tells: the state follows the command in brackets."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[:1] in (["Z"], ["X"])
