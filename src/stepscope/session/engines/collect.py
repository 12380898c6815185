"""From the records of observed processes to runs, dumps and traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.analyse.run.account import around, missing_ns, wall_ns
from stepscope.analyse.run.assemble import assemble
from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.step_cache import disagreement
from stepscope.analyse.run.window import window_steps
from stepscope.model.dump import PerfDump
from stepscope.model.engine_record import CallRecord, ClientRecord
from stepscope.model.errors import StepscopeError
from stepscope.model.file_names import as_file_name
from stepscope.model.run import Run
from stepscope.record.atomic import keep_existing
from stepscope.record.perf_dump import numbered, write_dump
from stepscope.record.run_record import write_run
from stepscope.record.spool_reader import SpoolContent
from stepscope.record.trace_writing.trace_writer import TraceContent, write_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where to write; None: not written."""

    perf_dump: Path | None = None
    traces: Path | None = None
    runs: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRequest:
    """One request of an engine: its run, and its client's wall time where the client was seen."""

    run: Run
    dump: PerfDump
    engine: str
    version: str
    wall_ns: int | None = None
    missing_ns: int | None = None  # of the wall time: in no stage, not the pipeline's
    dump_path: Path | None = None


def run_of(call: CallRecord, client: ClientRecord | None) -> Run:
    """The run of one recorded call. Pure."""
    run = assemble(
        call.recording,
        request_id=call.request_id,
        call_id=call.number,
        workload=call.workload,
        environment=call.environment,
        engaged=call.engaged,
    )
    said = disagreement(call.recording.cached_forwards)
    return replace(
        run,
        rank=call.rank,
        world_size=call.world_size,
        outside=(*run.outside, *around(call, client)),
        warnings=(*run.warnings, *(() if said is None else (said,))),
    )


def collect(
    content: SpoolContent, to: Destination, problem: Callable[[str], None]
) -> tuple[ObservedRequest, ...]:
    """Put every recorded call together and write what was asked for; a failed write costs only itself."""
    calls = sorted(content.calls, key=lambda call: call.recording.ends.start_ns)
    clients: dict[str, list[ClientRecord]] = {}
    for seen in content.clients:
        clients.setdefault(seen.request_id, []).append(seen)
    names: Counter[str] = Counter()
    found = []
    for number, call in enumerate(calls):
        client = _client_of(call, clients.get(call.request_id, []))
        try:
            run = run_of(call, client)
        except Exception as error:  # of another version, or damaged: typed JSON that makes no sense
            said = f"{type(error).__name__}: {error}"
            problem(f"the record of request {call.request_id} makes no sense: {said}")
            continue
        run = _with_trace(call, run, to.traces, problem)
        dump = reconcile(run)
        folder = f"{as_file_name(run.request_id)}-rank{run.rank}"
        names[folder] += 1
        folder += f"-{names[folder] - 1}" if names[folder] > 1 else ""
        found.append(
            ObservedRequest(
                run=run,
                dump=dump,
                engine=call.engine,
                version=call.version,
                wall_ns=None if client is None else wall_ns(client),
                missing_ns=None if client is None else missing_ns(call, client),
                dump_path=_write(run, dump, _Names(number=number, folder=folder), to, problem),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What the files of one request are called."""

    number: int
    folder: str


def _client_of(call: CallRecord, same: Sequence[ClientRecord]) -> ClientRecord | None:
    """What the client saw of a call; of several requests of one id the one that was under way then."""
    if len(same) == 1:
        return same[0]
    start_ns = call.recording.ends.start_ns
    return next((client for client in same if client.sent_ns <= start_ns <= client.received_ns), None)


def _with_trace(call: CallRecord, run: Run, directory: Path | None, problem: Callable[[str], None]) -> Run:
    raw = call.raw_trace
    if raw is None or directory is None or not Path(raw.path).is_file():  # cut already, with the first look
        return run
    steps = window_steps(run.steps, asked=raw.asked, all_stages=raw.all_stages)
    content = TraceContent(steps=steps, asked=raw.asked, full_stages=raw.all_stages, marks=raw.anchors)
    try:
        window = write_trace(Path(raw.path), run, content, directory)
    except StepscopeError as error:
        problem(str(error))
        return replace(run, warnings=(*run.warnings, str(error)))
    with suppress(OSError):  # a folder that can only be read: the next look cuts it again
        Path(raw.path).unlink(missing_ok=True)
    return replace(run, traces=(*run.traces, window))


def _write(
    run: Run, dump: PerfDump, names: _Names, to: Destination, problem: Callable[[str], None]
) -> Path | None:
    written = None
    try:
        if to.perf_dump is not None:
            path = numbered(to.perf_dump, names.number)
            keep_existing(path)
            written = write_dump(dump, path)
        if to.runs is not None:
            folder = to.runs / names.folder
            write_run(run, folder / "run.json")
            write_dump(dump, folder / "perf.json")
    except StepscopeError as error:
        problem(str(error))
    return written
