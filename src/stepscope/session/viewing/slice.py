"""``slice``: a part of a trace as a trace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepscope.analyse.trace.slice_window import SliceWindow, Wanted, slice_window
from stepscope.model.errors import UnreadableInputError, UsageError
from stepscope.record.nsight.cut import slice_nsight
from stepscope.record.nsight.export import exported
from stepscope.record.open import InputKind, read_trace, recognise
from stepscope.record.trace_writing.trace_json import write_trace_json
from stepscope.record.trace_writing.trace_slice import Slice, SliceMark, slice_kineto
from stepscope.record.unpacked import unpacked

NSIGHT = frozenset({InputKind.NSIGHT_SQLITE, InputKind.NSIGHT_REPORT})
JSON_SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOutcome:
    """The file that was written and what is in it."""

    path: Path
    what: str
    steps: tuple[int, ...]


def slice_trace(trace: Path, output: Path, wanted: Wanted) -> SliceOutcome:
    """Cut ``trace`` and write ``output``: the same format, or JSON for Perfetto by its suffix.

    Raises:
        UnreadableInputError: ``trace`` is no trace.
        UsageError: it holds no such step or stage, or ``output`` is the trace itself.
        RunFailedError: ``output`` cannot be written.

    """
    kind = recognise(trace)
    if output.exists() and output.samefile(trace):
        raise UsageError(f"{output} is the trace itself.", remedy="Give another -o.")
    if kind in NSIGHT:
        return _slice_nsight(trace, output, wanted)
    if kind is not InputKind.KINETO:
        read_trace(trace)  # says what it is instead
        raise UnreadableInputError(f"{trace} cannot be cut.")
    if not output.name.endswith(JSON_SUFFIXES):
        raise UsageError(f"{output} has another format than the trace.", remedy="Name it .json.gz or .json.")
    read = read_trace(trace)
    window = slice_window(read, wanted)
    slice_kineto(trace, output, _slice(window, read.processes))
    return _outcome(output, window)


def _slice_nsight(trace: Path, output: Path, wanted: Wanted) -> SliceOutcome:
    if recognise(trace) is InputKind.NSIGHT_REPORT:
        with exported(trace) as database:
            return _slice_nsight(database, output, wanted)
    with unpacked(trace) as database:
        window = slice_window(read_trace(database), wanted)
        if output.suffix == ".sqlite":
            slice_nsight(database, output, window.intervals)
        elif output.name.endswith(JSON_SUFFIXES):
            cut = output.with_name(f".{output.name}.cut.sqlite")
            try:
                slice_nsight(database, cut, window.intervals)
                write_trace_json(read_trace(cut), output)
            finally:
                cut.unlink(missing_ok=True)
        else:
            raise UsageError(f"{output} has no suffix that we write.", remedy="Name it .sqlite or .json.gz.")
    return _outcome(output, window)


def _slice(window: SliceWindow, processes: Sequence[int]) -> Slice:
    marks = tuple(
        SliceMark(
            name=mark.name,
            process=processes[mark.span.process],
            thread=mark.span.thread,
            start_ns=mark.span.start_ns,
            end_ns=mark.span.end_ns,
            inferred=mark.inferred,
        )
        for mark in window.marks
    )
    return Slice(intervals=window.intervals, steps=window.steps, what=window.what, marks=marks)


def _outcome(output: Path, window: SliceWindow) -> SliceOutcome:
    return SliceOutcome(path=output, what=window.what, steps=window.steps)
