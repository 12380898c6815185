"""Writes everything that one run left: outputs, trace, dump, run record. A failed write costs only itself."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stepscope.analyse.run.reconcile import reconcile
from stepscope.model.dump import PerfDump
from stepscope.model.errors import StepscopeError
from stepscope.model.media import Media
from stepscope.model.run import Output, OutsideRun, Run
from stepscope.model.vocabulary import Outside
from stepscope.record.atomic import keep_existing
from stepscope.record.media import output_of, save_media, stem_of
from stepscope.record.perf_dump import write_dump
from stepscope.record.run_record import RUN_FILE, write_run
from stepscope.session.destinations import Destinations
from stepscope.session.generate_options import GenerateResult, OutputOptions
from stepscope.session.interrupts import Interrupts
from stepscope.session.keep_trace import TraceToKeep, keep_trace
from stepscope.session.mapping import Mapping
from stepscope.session.observe import ObservedCall
from stepscope.session.rescue import or_elsewhere
from stepscope.workload.arguments import GenerationRequest
from stepscope.workload.media import media_of
from stepscope.workload.request import Loaded

RANDOM_WEIGHTS_STAMP = "random weights"
DUMP_FILE = "perf.json"
"""The dump's name in a run directory."""


@dataclass(slots=True)
class _Kept:
    """What has been written of a run so far, and what could not be."""

    run: Run
    failures: list[BaseException] = field(default_factory=list)

    def add(self, **fields: Any) -> None:
        """Append to tuples of the run: ``outside``, ``outputs``, ``traces``, ``warnings``."""
        grown = {name: (*getattr(self.run, name), *values) for name, values in fields.items()}
        self.run = replace(self.run, **grown)  # type: ignore[arg-type]  # tuples of what each holds

    def warn(self, text: str) -> None:
        self.add(warnings=(text,))

    @contextmanager
    def guarded(self, outside: Outside | None = None) -> Iterator[None]:
        """Keep a failure to write for later, and the time spent as an outside stage."""
        begin = time.perf_counter_ns()
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:  # an impatient Ctrl-C costs one file, not all
            self.failures.append(error)
            self.add(warnings=(_told(error),))
        if outside is not None:
            end = time.perf_counter_ns()
            self.add(outside=(OutsideRun(name=outside, host_start_ns=begin, host_end_ns=end),))


def _told(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted while a file was written"
    return str(error) if isinstance(error, StepscopeError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that has ended, one way or another, and where its files are to go."""

    observed: ObservedCall
    request: GenerationRequest
    loaded: Loaded
    output: OutputOptions
    places: Destinations
    mapping: Mapping | None = None
    max_trace_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCall:
    """What was written of a call that somebody else made, and what could not be."""

    run: Run
    dump: PerfDump
    dump_path: Path | None
    run_directory: Path | None
    failures: tuple[BaseException, ...] = ()


def keep(finished: Finished, interrupts: Interrupts) -> GenerateResult:
    """Write the files of one run, complete or not, and return its result."""
    observed, places = finished.observed, finished.places
    kept = _Kept(run=observed.run)
    if places.traces is not None:
        trace = TraceToKeep(
            observed=observed,
            run=kept.run,
            directory=places.traces,
            mapping=finished.mapping,
            max_bytes=finished.max_trace_bytes,
        )
        _keep_trace(kept, trace, allowed=interrupts.allowed)
    _discard_raw(observed)
    if observed.error is None:
        with kept.guarded(Outside.OUTPUT_SAVING if places.outputs else None), interrupts.allowed():
            _keep_outputs(kept, finished)
    dump_path, run_directory = _keep_records(kept, places)
    return GenerateResult(
        run=kept.run,
        dump=reconcile(kept.run),
        output=observed.result,
        dump_path=dump_path,
        run_directory=run_directory,
        error=observed.error or next(iter(kept.failures), None),
    )


def _discard_raw(observed: ObservedCall) -> None:
    """Remove the raw export, whole or cut off, before the small files: on a full disk it has their place."""
    if observed.raw_trace is not None:
        shutil.rmtree(observed.raw_trace.path.parent, ignore_errors=True)


def keep_call(observed: ObservedCall, places: Destinations) -> KeptCall:
    """As ``keep``, for a call of somebody else's program: its output is its own."""
    kept = _Kept(run=observed.run)
    if places.traces is not None:
        _keep_trace(kept, TraceToKeep(observed=observed, run=kept.run, directory=places.traces))
    _discard_raw(observed)
    dump_path, run_directory = _keep_records(kept, places)
    return KeptCall(
        run=kept.run,
        dump=reconcile(kept.run),
        dump_path=dump_path,
        run_directory=run_directory,
        failures=tuple(kept.failures),
    )


def _keep_trace(
    kept: _Kept,
    trace: TraceToKeep,
    *,
    allowed: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Write the trace; inside ``allowed`` a signal may end that, and is kept as a failure."""
    with kept.guarded(Outside.TRACE_EXPORT), allowed():
        (window, said), failure = or_elsewhere(
            lambda folder: keep_trace(replace(trace, directory=folder)), trace.directory, kept.warn
        )
        kept.add(traces=(window,), warnings=(said,) if said else ())
        if failure is not None:
            raise failure


def _keep_outputs(kept: _Kept, finished: Finished) -> None:
    request, loaded, folder = finished.request, finished.loaded, finished.places.outputs
    asked = finished.output.file_name
    stamp = RANDOM_WEIGHTS_STAMP if loaded.random_weights else None
    stem = _stem(request.prompt, kept.run.request_id, asked)
    outputs: list[Output] = []
    made: list[Media] = []
    failure = None
    for media in media_of(finished.observed.result, fps=request.fps or loaded.defaults.fps):
        if folder is None or failure is not None:
            saved = output_of(media)
        else:
            save = functools.partial(_save, media, stem, stamp)
            saved, failure = or_elsewhere(save, folder, kept.warn)
        outputs.append(saved)
        made.append(media)
    kept.add(outputs=outputs)
    kept.add(warnings=other_sizes(request, made))
    path = outputs[0].path if outputs else None
    if asked is not None and path is not None and Path(path).stem != stem:
        kept.add(warnings=(f"an output of that name exists: this one is {path}",))
    if not all(output.finite for output in outputs):
        kept.add(warnings=("the output holds NaN or infinite values; the timing stands",))
    if failure is not None:
        raise failure


def _save(media: Media, stem: str, stamp: str | None, folder: Path) -> Output:
    return save_media(media, folder, stem, stamp=stamp)


def other_sizes(request: GenerationRequest, made: Sequence[Media]) -> tuple[str, ...]:
    """Where the pipeline rounded what was asked for: what it made instead, once."""
    for media in made:
        if media.kind not in {"image", "video"}:
            continue
        height, width = media.data.shape[-3:-1]
        rows = [("height", request.height, height), ("width", request.width, width)]
        if media.kind == "video":
            rows.append(("frames", request.frames, media.data.shape[0]))
        said = [
            f"{what} {asked} was asked for, {got} made"
            for what, asked, got in rows
            if asked not in (None, got)
        ]
        if said:
            return (f"the pipeline rounded: {', '.join(said)}",)
    return ()


def _stem(prompt: str, request_id: str, asked: str | None) -> str:
    """The name asked for, or one from the prompt and the run's id that no other run has."""
    if asked is not None:
        return stem_of(Path(asked).stem)
    return f"{stem_of(prompt)}_{time.strftime('%Y%m%d-%H%M%S')}_{request_id[:8]}"


def _keep_records(kept: _Kept, places: Destinations) -> tuple[Path | None, Path | None]:
    """The run record and the dumps, last, so that they name the other files and every warning.

    The dump's path and the run directory, where they were written.
    """
    dump_path = places.perf_dump
    for record in (
        *([] if places.run is None else [places.run / DUMP_FILE, places.run / RUN_FILE]),
        dump_path,
    ):
        with kept.guarded():  # in a run directory only where two processes chose the same one
            previous = None if record is None else keep_existing(record)
            if previous is not None:
                kept.add(warnings=(f"{record} existed: it is now {previous}",))
    run_directory = written = None
    if places.run is not None:
        with kept.guarded():
            run_directory = _written(kept, places.run, lambda folder: _write_run_directory(kept.run, folder))
    if dump_path is not None:
        with kept.guarded():
            dump, name = reconcile(kept.run), dump_path.name
            written = _written(kept, dump_path.parent, lambda folder: write_dump(dump, folder / name))
    return written, run_directory


def _written(kept: _Kept, folder: Path, write: Callable[[Path], Path]) -> Path:
    """Write into ``folder``, or elsewhere with a word on where; then the failure is kept as well."""
    path, failure = or_elsewhere(write, folder, kept.warn)
    if failure is not None:
        with kept.guarded():
            raise failure
    return path


def _write_run_directory(run: Run, folder: Path) -> Path:
    write_dump(reconcile(run), folder / DUMP_FILE)
    write_run(run, folder / RUN_FILE)
    return folder
