"""Several calls of one program: a line each, the worst first to be seen, then the files."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from stepscope.analyse.results import RunSummary
from stepscope.model.run import Run
from stepscope.render import units
from stepscope.render.names import sentence, visible
from stepscope.render.report.report_terminal import MAXIMUM_WIDTH, console_for, in_encoding, trimmed
from stepscope.render.report.run_summary import RunFiles
from stepscope.render.report.stage_sentences import between_sentence
from stepscope.render.report.what_ran import model_sentence
from stepscope.render.tables import Column, Kind, Table, Value, build
from stepscope.render.terminal_grid import Layout, grid

SHOWN_CALLS = 20
SHOWN_FILES = 10
SHOWN_WARNINGS = 5

_CALLS = (
    Column(key="call", title="call", kind=Kind.INDEX),
    Column(key="pipeline", title="pipeline"),
    Column(key="total_ms", title="total ms", kind=Kind.MS),
    Column(key="step_count", title="steps", kind=Kind.COUNT),
    Column(key="step_median_ms", title="median ms", kind=Kind.MS),
    Column(key="slowest_ratio", title="slowest", kind=Kind.RATIO),
    Column(key="dominant_stage", title="most time in"),
    Column(key="trusted", title="trusted", kind=Kind.FLAG),
    Column(key="traced", title="traced", kind=Kind.MARK),
    Column(key="incomplete_reason", title="incomplete because"),
)
# The slowest step goes last: a spike is what a table of calls is looked through for.
_LAYOUT = Layout(flexible="pipeline", optional=("dominant_stage", "traced", "slowest_ratio"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSeen:
    """One finished call, and where its files are."""

    summary: RunSummary
    run: Run
    files: RunFiles


def render_calls_summary(calls: Sequence[CallSeen], count: int, console_width: int = MAXIMUM_WIDTH) -> str:
    """The calls as plain text; ``count`` is how many there were, of which ``calls`` are the newest."""
    stream = io.StringIO()
    console_for(stream, console_width).print(_summary(calls, count, console_width))
    return trimmed(stream.getvalue()) + file_lines(calls)


def write_calls_summary(calls: Sequence[CallSeen], count: int, stream: TextIO) -> None:
    """Write the calls to ``stream``: coloured for a terminal, plain for a pipe."""
    detected = Console(file=stream)
    width = min(detected.width, MAXIMUM_WIDTH) if detected.is_terminal else MAXIMUM_WIDTH
    text = io.StringIO()
    console_for(text, width, like=detected).print(_summary(calls, count, width))
    stream.write(in_encoding(trimmed(text.getvalue()) + file_lines(calls), stream.encoding))
    stream.flush()


def _summary(calls: Sequence[CallSeen], count: int, width: int) -> RenderableType:
    shown = calls[-SHOWN_CALLS:]
    head = f"{units.counted(count, 'pipeline call')} observed"
    if len(shown) < count:
        head += f", the last {len(shown)} shown"
    between = between_sentence(shown[-1].summary)
    parts: list[RenderableType] = [
        Text(head, style="bold"),
        Text(f"Last: {model_sentence(shown[-1].summary)}"),
        *([Text(sentence(f"Between: {between}"))] if between else []),
        Text(),
        grid(_narrow(calls_table(shown)), _LAYOUT, width),
        Text(),
    ]
    cut = [call for call in shown if call.summary.incomplete_reason][-SHOWN_WARNINGS:]
    parts += [Text(f"INCOMPLETE call {call.run.call_id}: {_reason(call)}", style="yellow") for call in cut]
    notes = dict.fromkeys(
        note for call in calls for note in (*call.summary.trust.reasons, *call.run.warnings)
    )
    parts += [Text(sentence(f"note: {note}"), style="yellow") for note in list(notes)[:SHOWN_WARNINGS]]
    if len(notes) > SHOWN_WARNINGS:
        parts.append(Text(f"and {units.counted(len(notes) - SHOWN_WARNINGS, 'more note')} in the records"))
    return Group(*parts)


def _reason(call: CallSeen) -> str:
    return visible(call.summary.incomplete_reason or "")


def _narrow(table: Table) -> Table:
    """Without the column of sentences, which a terminal has no room for: they are lines of their own."""
    return table.pick(*(column.key for column in table.columns if column.key != "incomplete_reason"))


def calls_table(calls: Sequence[CallSeen]) -> Table:
    """One row a call."""
    return build("calls", "Calls", _CALLS, map(_row, calls))


def _row(call: CallSeen) -> tuple[Value, ...]:
    summary, steps = call.summary, call.summary.step_statistics
    return (
        call.run.call_id,
        call.run.workload.block or call.run.workload.pipeline_class or call.run.workload.model,
        summary.total_ms,
        len(summary.steps),
        steps.median_ms if steps else None,
        steps.slowest_ratio if steps else None,
        summary.dominant_stage,
        summary.trust.ok,
        bool(call.run.traces),
        summary.incomplete_reason,
    )


def file_lines(calls: Sequence[CallSeen]) -> str:
    """A line a file, the newest; then the command that reads them all."""
    lines = [f"Saved profiler traces to: {trace.path}" for call in calls for trace in call.run.traces]
    dumps = [call.files.perf_dump.resolve() for call in calls if call.files.perf_dump is not None]
    folders = [call.files.run_directory.resolve() for call in calls if call.files.run_directory is not None]
    lines += [f"Metrics dumped to: {path}" for path in dumps]
    lines += [f"Saved run to: {path}" for path in folders]
    left = len(lines) - SHOWN_FILES
    if left > 0:
        lines = [*lines[-SHOWN_FILES:], f"and {units.counted(left, 'earlier file')} beside them"]
    if to_read := _to_read(calls):
        lines.append(f"Next: stepscope report {' '.join(map(shlex.quote, to_read))}")
    return "".join(f"{visible(line)}\n" for line in lines)


def _to_read(calls: Sequence[CallSeen]) -> list[str]:
    """What belongs together of one call: the newest that was traced, else the newest that was written."""
    written = [call for call in calls if call.files.run_directory or call.files.perf_dump or call.run.traces]
    traced = [call for call in written if call.run.traces]
    for call in (traced or written)[-1:]:
        if call.files.run_directory is not None:
            return [str(call.files.run_directory.resolve())]
        dump = call.files.perf_dump
        return [*(trace.path for trace in call.run.traces), *([str(dump.resolve())] if dump else [])]
    return []
