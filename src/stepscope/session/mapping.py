"""The mapping pass: one request recorded slowly, so that the measured one can be recorded lean."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from stepscope.analyse.trace.mapping import SourceMap, apply_map, map_sources
from stepscope.analyse.trace.segments import NO_STEP, Boundary, boundaries
from stepscope.capture.state import preserved_state
from stepscope.model.errors import StepscopeError
from stepscope.model.run import Environment, Run
from stepscope.model.source_map import MappedCalls, MappingSummary
from stepscope.model.trace import Trace
from stepscope.record.kineto.reader import read_kineto
from stepscope.record.trace_writing.lean_writer import MapCalls, anchors_of
from stepscope.record.trace_writing.trace_window import TraceClock
from stepscope.record.trace_writing.trace_writer import narrowest_of_each_end
from stepscope.session.observe import ObservedCall, ObserveOptions, TraceRequest, observe_call
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.describe import describe
from stepscope.workload.request import Loaded

MAPPING_STEPS = 4
"""Enough for multistep schedulers to reach their steady sequence of calls (UniPC: step 2)."""

LONG_STEP_NS = 5_000_000_000
"""Where a step takes longer, two steps are mapped: a minute of waiting is not worth a scheduler's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """What a mapping pass gave: the map, or the reason why there is none."""

    sources: SourceMap | None = None
    reason: str = ""

    @property
    def calls_a_step(self) -> int:
        """Calls of a usual step that was mapped; 0 where there is no map."""
        counts = [count for step, count in self._calls().items() if step != NO_STEP]
        return int(median(counts)) if counts else 0

    @property
    def calls_outside(self) -> int:
        """Calls outside of steps: text encoding, decoding."""
        return self._calls().get(NO_STEP, 0)

    def _calls(self) -> dict[int, int]:
        return {} if self.sources is None else self.sources.calls_by_step

    @property
    def launches(self) -> bool:
        """Whether the calls launch work on a device; on a CPU they are operators."""
        return self.sources is not None and self.sources.of_launches


def mapping_pass(
    loaded: Loaded, request: GenerationRequest, environment: Environment, *, steps: int, scratch: Path | None
) -> Mapping:
    """Run ``request`` once more, with ``steps`` steps, and find out what makes each of its calls.

    Random state is put back, as for a warm-up. An exception of the pipeline goes on.
    """
    short = replace(request, steps=steps)
    with preserved_state(loaded.pipeline), tempfile.TemporaryDirectory(dir=scratch) as folder:
        arguments = call_arguments(loaded.pipeline, short, loaded.defaults)
        observed = observe_call(
            loaded.pipeline,
            lambda: loaded.pipeline(**arguments),
            request_id="mapping",
            workload=describe(loaded, short, arguments),
            environment=environment,
            options=ObserveOptions(
                trace=TraceRequest(steps=-1, scratch_dir=Path(folder), mapping=True), own_process=True
            ),
        )
        if observed.error is not None:
            raise observed.error
        return mapping_of(observed)


def mapping_of(observed: ObservedCall) -> Mapping:
    """The map of a call that was recorded with ``TraceRequest(mapping=True)``."""
    raw = observed.raw_trace
    if raw is None or raw.lines is None:
        said = next((text for text in observed.run.warnings if "trace" in text), "nothing was recorded")
        return Mapping(reason=said)
    try:
        trace = read_kineto(raw.path)
    except StepscopeError as error:
        return Mapping(reason=str(error))
    anchors = anchors_of(trace)
    if len(anchors) != len(raw.anchors):
        return Mapping(reason="the mapping pass lost its clock's anchors")
    clock = TraceClock.from_points(narrowest_of_each_end(raw.anchors, anchors))
    lines = replace(raw.lines, at_ns=clock.at_all(raw.lines.at_ns))
    return Mapping(sources=map_sources(trace, _on_trace(observed.run, clock), lines))


def call_mapper(run: Run, mapping: Mapping | None) -> MapCalls:
    """What finds the source of each call in a run's recording."""

    def map_calls(trace: Trace, clock: TraceClock) -> MappedCalls | None:
        if mapping is None or mapping.sources is None:
            return None
        return apply_map(trace, _on_trace(run, clock), mapping.sources)

    return map_calls


def mapping_steps(warmup: Run | None, asked: int | None) -> int:
    """How many steps to map, given a warm-up run and the steps of the request."""
    steps = MAPPING_STEPS
    if warmup is not None and warmup.steps and warmup.steps[-1].span.duration_ns > LONG_STEP_NS:
        steps = 2
    return steps if asked is None else min(steps, asked)


def _on_trace(run: Run, clock: TraceClock) -> list[Boundary]:
    return [replace(mark, at_ns=clock.at(mark.at_ns)) for mark in boundaries(run)]


def about(summary: MappingSummary | None, mapping: Mapping | None) -> str:
    """One line where calls have no source that a user would expect; empty where all have one."""
    if summary is None:
        return "" if mapping is None or not mapping.reason else f"no source lines: {mapping.reason}"
    missing = summary.calls - summary.checked - summary.by_place
    if not missing:
        return ""
    most = max(summary.unmapped, key=lambda reason: summary.unmapped[reason], default="no reason is known")
    return f"{missing} of {summary.calls} calls have no source line: {most}"
