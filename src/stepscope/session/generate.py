"""``generate``: load a pipeline once, run each request observed, and write everything that was seen."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepscope.capture.environment import read_environment
from stepscope.capture.nsight.marker import NvtxRequest
from stepscope.model.run import Environment, OutsideRun, Run, Warmup
from stepscope.model.vocabulary import Outside, TraceDetail
from stepscope.record.abandoned import SCRATCH_PREFIX, in_use, remove_abandoned
from stepscope.session.commit import commit_here
from stepscope.session.destinations import Destinations, destinations
from stepscope.session.generate_options import GenerateOptions, GenerateResult, Listener, SilentListener
from stepscope.session.interrupts import Interrupts
from stepscope.session.keep import Finished, keep
from stepscope.session.mapping import Mapping, mapping_pass, mapping_steps
from stepscope.session.nsight.request import requested_nvtx
from stepscope.session.observe import ObserveOptions, TraceRequest, observe_call, where_it_ended
from stepscope.session.rescue import scratch_parent
from stepscope.session.trace_forecast import PlannedWindow, forecast, plan_window
from stepscope.session.warmup import not_warmed_up, warm_up
from stepscope.workload.arguments import call_arguments
from stepscope.workload.describe import describe
from stepscope.workload.load import load
from stepscope.workload.request import Loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What is the same for every request."""

    options: GenerateOptions
    loaded: Loaded
    environment: Environment
    listener: Listener
    nvtx: NvtxRequest | None = None


def generate(
    options: GenerateOptions,
    listener: Listener | None = None,
    *,
    finished: Callable[[GenerateResult], None] = lambda _: None,
) -> tuple[GenerateResult, ...]:
    """Run every request and return a result for each; the last one has ``error`` set where a run failed.

    What was recorded until a failure, or until Ctrl-C, is written like that of any other run. ``finished`` is
    called with each result as soon as it is there.

    Raises:
        UsageError: the model is unknown, or a flag is one that the pipeline cannot take.
        RunFailedError: a destination cannot be written, or the model cannot be loaded.

    """
    listener = listener or SilentListener()
    destinations(options, 0).check()
    requested_nvtx(asked=options.nvtx, layers=options.layerwise_nvtx)  # complain before loading
    begin = time.perf_counter_ns()
    loaded = load(options.load, listener.loading)
    loading = _outside(Outside.MODEL_LOADING, begin)
    return generate_with(loaded, options, listener, loading=loading, finished=finished)


def generate_with(
    loaded: Loaded,
    options: GenerateOptions,
    listener: Listener,
    *,
    loading: OutsideRun | None = None,
    finished: Callable[[GenerateResult], None] = lambda _: None,
) -> tuple[GenerateResult, ...]:
    """``generate`` with a pipeline that is loaded already; ``options.load`` is not looked at."""
    destinations(options, 0).check()
    session = _Session(
        options=options,
        loaded=loaded,
        environment=replace(read_environment(loaded.device), commit=commit_here()),
        listener=listener,
        nvtx=requested_nvtx(asked=options.nvtx, layers=options.layerwise_nvtx),
    )
    for request in options.requests:  # a wrong argument is found before the first run, not after it
        call_arguments(loaded.pipeline, request, loaded.defaults)
    _show_bars(loaded.pipeline, shown=options.show_progress)
    prepared = _warm_up(session)
    if loading is not None:
        prepared = replace(prepared, outside=(loading, *prepared.outside))
    results: list[GenerateResult] = []
    for number in range(len(options.requests)):
        results.append(_run(session, number, prepared))
        prepared = replace(prepared, outside=())
        finished(results[-1])
        if results[-1].error is not None:
            break
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What went before a run."""

    warmup: Warmup
    mapping: Mapping | None
    window: PlannedWindow | None
    outside: tuple[OutsideRun, ...]


def _warm_up(session: _Session) -> _Prepared:
    options = session.options.warmup
    measures = session.options.measures or session.nvtx is not None
    wanted = measures if options.enabled is None else options.enabled
    profile = session.options.profile
    maps = profile is not None and profile.detail is TraceDetail.SOURCE
    if not wanted:
        said_no = options.enabled is False
        reason = "--no-warmup" if said_no else "nothing is timed or traced"
        mapping = Mapping(reason=reason) if maps else None
        return _Prepared(not_warmed_up(reason), mapping, _plan_window(session, None, mapping), ())
    begin = time.perf_counter_ns()
    runs: list[Run] = []
    warmup = warm_up(
        session.loaded,
        session.options.requests[0],
        session.environment,
        steps=options.steps,
        at_most=options.at_most,
        about_to_run=session.listener.warming_up,
        seen=runs.append,
    )
    mapping = _map(session, runs[-1]) if maps else None
    outside = _outside(Outside.WARMUP, begin)
    return _Prepared(warmup, mapping, _plan_window(session, runs[-1], mapping), (outside,))


def _map(session: _Session, warmup_run: Run) -> Mapping:
    """Which line makes which call, found out once for all requests."""
    session.listener.mapping()
    request = session.options.requests[0]
    with _scratch(destinations(session.options, 0)) as scratch:
        return mapping_pass(
            session.loaded,
            request,
            session.environment,
            steps=mapping_steps(warmup_run, request.steps),
            scratch=scratch,
        )


def _plan_window(session: _Session, warmup_run: Run | None, mapping: Mapping | None) -> PlannedWindow | None:
    """Which steps to trace, and a word on their size; fewer than asked where they do not fit."""
    profile, loaded = session.options.profile, session.loaded
    if profile is None:
        return None
    total = session.options.requests[0].steps or loaded.defaults.steps
    planned = plan_window(profile, total, forecast(loaded, profile.detail, warmup_run, mapping))
    if planned.forecast:
        session.listener.forecast(planned.forecast)
    return planned


def _run(session: _Session, number: int, prepared: _Prepared) -> GenerateResult:
    """One request from its arguments to its files."""
    options, loaded = session.options, session.loaded
    request = options.requests[number]
    places = destinations(options, number)
    request_id = str(uuid.uuid4())
    session.listener.running(request_id, number, len(options.requests))
    arguments = call_arguments(loaded.pipeline, request, loaded.defaults)
    interrupts = Interrupts()

    def call() -> Any:
        if (waiting := interrupts.pending()) is not None:
            raise waiting
        with interrupts.allowed():
            return loaded.pipeline(**arguments)

    with interrupts.held_back(), _scratch(places) as scratch:
        observed = observe_call(
            loaded.pipeline,
            call,
            request_id=request_id,
            workload=describe(loaded, request, arguments),
            environment=session.environment,
            options=ObserveOptions(
                trace=_trace_request(options, prepared.window, scratch), own_process=True, nvtx=session.nvtx
            ),
            call_id=number,
        )
        run = replace(
            observed.run,
            warmup=prepared.warmup,
            incomplete_reason=where_it_ended(observed.run),
            outside=(*prepared.outside, *observed.run.outside),
            warnings=(*loaded.notes, *_shortened(prepared.window), *observed.run.warnings),
        )
        result = keep(
            Finished(
                observed=replace(observed, run=run),
                request=request,
                loaded=loaded,
                output=options.output,
                places=places,
                mapping=prepared.mapping,
                max_trace_bytes=None if options.profile is None else options.profile.max_bytes,
            ),
            interrupts,
        )
    waiting = interrupts.pending()
    return replace(result, error=result.error or waiting)


@contextmanager
def _scratch(places: Destinations) -> Iterator[Path | None]:
    """A folder for the raw export beside the trace, on a disk that is known to take it."""
    if places.traces is None:
        yield None
        return
    places.check()
    places.traces.mkdir(parents=True, exist_ok=True)
    parent = scratch_parent(places.traces)
    for once in {parent, places.traces}:
        remove_abandoned(once)
    with (
        tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder,
        in_use(Path(folder)),
    ):
        raw = Path(folder) / "raw"
        raw.mkdir()
        yield raw


def _trace_request(
    options: GenerateOptions, window: PlannedWindow | None, scratch: Path | None
) -> TraceRequest | None:
    if options.profile is None or window is None or scratch is None:
        return None
    return TraceRequest(
        steps=window.steps,
        all_stages=window.all_stages,
        scratch_dir=scratch,
        detail=options.profile.detail,
    )


def _shortened(window: PlannedWindow | None) -> tuple[str, ...]:
    return (window.note,) if window is not None and window.note else ()


def _show_bars(pipeline: Any, *, shown: bool) -> None:
    """Diffusers' own progress bar: its cost is the user's wish, and none where nobody looks."""
    if hasattr(pipeline, "set_progress_bar_config"):
        pipeline.set_progress_bar_config(disable=not shown)


def _outside(name: Outside, begin_ns: int) -> OutsideRun:
    return OutsideRun(name=name, host_start_ns=begin_ns, host_end_ns=time.perf_counter_ns())
