"""Writes the trace of one run at the detail it was recorded with, and keeps it below a size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.model.errors import RunFailedError
from stepscope.model.run import Run, TraceWindow
from stepscope.model.vocabulary import TraceDetail
from stepscope.record.trace_writing.lean_writer import write_lean_trace
from stepscope.record.trace_writing.trace_writer import TraceContent, write_trace
from stepscope.session.mapping import Mapping, about, call_mapper
from stepscope.session.observe import ObservedCall, RawTrace

LEAN = frozenset({TraceDetail.KERNELS, TraceDetail.SOURCE})
"""Details that are written from columns, as small as they get; the others keep what the profiler wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceToKeep:
    """A recorded run and where its trace goes. ``run`` has what was added to the observed one since."""

    observed: ObservedCall
    run: Run
    directory: Path
    mapping: Mapping | None = None
    max_bytes: int | None = None


def keep_trace(trace: TraceToKeep) -> tuple[TraceWindow, str]:
    """Write a run's trace; also a line about what could not be mapped, empty where nothing is amiss.

    A file larger than ``max_bytes`` is written again with as many steps as fit, at least one.

    Raises:
        RunFailedError: nothing was recorded, or it cannot be written.
        UnreadableInputError: the profiler left something that is no export.

    """
    raw = _export(trace)
    content = TraceContent(
        steps=raw.steps,
        asked=raw.request.steps,
        full_stages=raw.request.all_stages,
        marks=raw.anchors,
    )
    window, said = _write(trace, raw, content)
    cap_bytes, asked = trace.max_bytes, len(window.steps)
    while cap_bytes is not None and len(window.steps) > 1:
        path = Path(window.path)
        size_bytes = path.stat().st_size
        if size_bytes <= cap_bytes:
            break
        fitting = max(1, min(len(window.steps) - 1, int(len(window.steps) * cap_bytes / size_bytes)))
        content = replace(content, steps=window.steps[:fitting], full_stages=False)
        path.unlink()
        window, said = _write(trace, raw, content)
        note = f"--max-trace-mb {cap_bytes / 1e6:g}: the trace holds {len(window.steps)} of {asked} steps"
        window = replace(window, note=note)
    return window, said


def _export(trace: TraceToKeep) -> RawTrace:
    raw = trace.observed.raw_trace
    if raw is None:
        said = (text.removeprefix("no trace: ") for text in trace.run.warnings if "trace" in text)
        raise RunFailedError(f"the run has no trace: {next(said, 'it ended before a step was recorded')}.")
    if not raw.path.exists():  # Kineto writes from C++ and says nothing when it cannot
        raise RunFailedError(
            f"torch.profiler could not write its export beside the trace, in {trace.directory}.",
            remedy="The disk is most likely full: free some space or choose another --profile-dir.",
        )
    return raw


def _write(trace: TraceToKeep, raw: RawTrace, content: TraceContent) -> tuple[TraceWindow, str]:
    run, directory = trace.run, trace.directory
    if raw.request.detail not in LEAN:
        return write_trace(raw.path, run, content, directory), ""
    mapper = call_mapper(run, trace.mapping)
    window, summary = write_lean_trace(raw.path, run, content, directory, mapper)
    return window, about(summary, trace.mapping)
