"""What ``generate`` prints of a run: is it trusted, what was engaged, where the time went, which files."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from stepscope.analyse.results import RunSummary
from stepscope.model.run import AS_LOADED, Run, Transfer, Warmup
from stepscope.render import units
from stepscope.render.names import sentence, visible
from stepscope.render.report.answer import cache_sentence, steps_sentence, total_sentence
from stepscope.render.report.report_terminal import (
    MAXIMUM_WIDTH,
    console_for,
    finding_lines,
    in_encoding,
    trimmed,
)
from stepscope.render.report.run_tables import TIMES, not_in_stages
from stepscope.render.report.stage_sentences import between_sentence
from stepscope.render.report.stage_sums import summed_times
from stepscope.render.report.what_ran import model_sentence
from stepscope.render.tables import Column, Kind, build
from stepscope.render.terminal_grid import Layout, grid

_SHOWN_REASONS = 3
SHOWN_PROMPT = 40
_TOGETHER = (
    Column(key="run", title="run", kind=Kind.INDEX),
    Column(key="prompt", title="prompt"),
    Column(key="total_ms", title="total ms", kind=Kind.MS),
    Column(key="step_median_ms", title="median step ms", kind=Kind.MS),
    Column(key="trusted", title="trusted", kind=Kind.FLAG),
    Column(key="request", title="request"),
)
_STAGES = (
    Column(key="name", title="stage"),
    TIMES,
    Column(key="duration_ms", title="ms", kind=Kind.MS),
    Column(key="share", title="share", kind=Kind.SHARE),
    Column(key="device_ms", title="device ms", kind=Kind.MS),
    Column(key="host_ms", title="host ms", kind=Kind.MS),
    Column(key="transfer_ms", title="transfer ms", kind=Kind.MS),
    Column(key="inferred_ms", title="inferred ms", kind=Kind.MS),
)
_TRANSFERS = (
    Column(key="component", title="weights moved"),
    Column(key="kind", title="direction"),
    Column(key="count", title="moves", kind=Kind.COUNT),
    Column(key="bytes", title="size", kind=Kind.BYTES),
    Column(key="pinned", title="pinned", kind=Kind.FLAG),
    Column(key="total_ms", title="ms", kind=Kind.MS),
    Column(key="gb_per_s", title="GB/s", kind=Kind.NUMBER),
    Column(key="exposed_ms", title="exposed ms", kind=Kind.MS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """Where the records of a run were written."""

    perf_dump: Path | None = None
    run_directory: Path | None = None


def render_run_summary(
    summary: RunSummary, run: Run, files: RunFiles, console_width: int = MAXIMUM_WIDTH
) -> str:
    """The run as plain text, no line wider than ``console_width`` but those with paths, which stay whole."""
    stream = io.StringIO()
    console_for(stream, console_width).print(run_summary(summary, run, console_width))
    return trimmed(stream.getvalue()) + file_lines(run, files)


def write_run_summary(summary: RunSummary, run: Run, files: RunFiles, stream: TextIO) -> None:
    """Write the run to ``stream``: coloured for a terminal, plain for a pipe."""
    detected = Console(file=stream)
    width = min(detected.width, MAXIMUM_WIDTH) if detected.is_terminal else MAXIMUM_WIDTH
    text = io.StringIO()
    console_for(text, width, like=detected).print(run_summary(summary, run, width))
    stream.write(in_encoding(trimmed(text.getvalue()) + file_lines(run, files), stream.encoding))
    stream.flush()


def run_header(run: Run, *, number: int, count: int) -> str:
    """The line above one of several runs: which it is, its prompt, its id. Ends a blank line before it."""
    rule = "" if number == 1 else "\n"
    return f"{rule}Run {number} of {count}: {_prompt(run)}, request {visible(run.request_id)}\n"


def write_runs_together(runs: Sequence[tuple[RunSummary, Run]], stream: TextIO) -> None:
    """A row a run, for a terminal or a pipe."""
    detected = Console(file=stream)
    width = min(detected.width, MAXIMUM_WIDTH) if detected.is_terminal else MAXIMUM_WIDTH
    rows = (_together(number, *run) for number, run in enumerate(runs, 1))
    text = io.StringIO()
    table = grid(build("runs", "Runs", _TOGETHER, rows), Layout(flexible="prompt"), width)
    console_for(text, width, like=detected).print(table)
    stream.write("\n" + in_encoding(trimmed(text.getvalue()), stream.encoding))
    stream.flush()


def _together(number: int, summary: RunSummary, run: Run) -> tuple[str | float | bool | None, ...]:
    statistics = summary.step_statistics
    median_ms = statistics.median_ms if statistics else None
    return number, _prompt(run), summary.total_ms, median_ms, summary.trust.ok, visible(run.request_id)


def _prompt(run: Run) -> str:
    """Escaped and cut: prompts may be pages long."""
    text = visible(" ".join(run.workload.prompt.split()))
    return repr(text if len(text) <= SHOWN_PROMPT else text[: SHOWN_PROMPT - 1] + "…")


def run_summary(summary: RunSummary, run: Run, width: int) -> RenderableType:
    """Everything but the files, for a rich console, the answer first."""
    stages = build("run_stages", "Stages", _STAGES, _stage_rows(summary, run))
    shares = [row.stage.share for row in summed_times(summary.stages)]
    shares += [other.share for other in not_in_stages(summary)]
    parts: list[RenderableType] = [_verdict(summary, run), _facts(summary, run), Text()]
    if summary.stages:
        parts += [grid(stages, Layout(optional=("inferred_ms", "host_ms")), width, shares), Text()]
    if run.transfers:
        transfers = build("transfers", "Transfers", _TRANSFERS, map(_transfer_row, run.transfers))
        parts += [grid(transfers, Layout(flexible="component"), width), Text()]
    parts += [finding_lines(finding, label="Finding") for finding in summary.findings]
    parts += [Text()] if summary.findings else []
    notes = [f"note: {trace.note}" for trace in run.traces if trace.note]
    notes += [f"warning: {warning}" for warning in run.warnings]
    return Group(*parts, *(Text(sentence(note), style="yellow") for note in notes))


def _verdict(summary: RunSummary, run: Run) -> Text:
    text = _trust(summary)
    if run.warmup is not None and run.warmup.requests == 0:
        because = f" ({visible(run.warmup.reason)})" if run.warmup.reason else ""
        text.append(f"\nNOT WARMED UP{because}: first-call costs may be in these times", style="yellow")
    return text


def _trust(summary: RunSummary) -> Text:
    trust = summary.trust
    if trust.ok:
        return Text.assemble(("TRUSTED:", "bold green"), " stages, steps, total and clock agree")
    reasons = [sentence(reason) for reason in trust.reasons]
    text = Text.assemble(("UNTRUSTED:", "bold white on red"), f" {reasons[0]}")
    for reason in reasons[1:_SHOWN_REASONS]:
        text.append(f"\n  also: {reason}")
    left = len(reasons) - _SHOWN_REASONS
    return text.append(f"\n  and {units.counted(left, 'more reason')} in the dump") if left > 0 else text


def _facts(summary: RunSummary, run: Run) -> Grid:
    """The labelled sentences between the verdict and the tables."""
    rows = Grid.grid(padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True, style="bold cyan", width=9)
    rows.add_column(overflow="fold")
    rows.add_row("Model", Text(model_sentence(summary)))
    rows.add_row("Engaged", Text(engaged_sentence(run)))
    rows.add_row("Total", Text(total_sentence(summary)))
    if between := between_sentence(summary):
        rows.add_row("Between", Text(sentence(between)))
    rows.add_row("Steps", Text(steps_sentence(summary.step_statistics, summary.steps)))
    if summary.step_cache is not None:
        rows.add_row("Cache", Text(cache_sentence(summary.step_cache, len(summary.steps))))
    if run.warmup is None or run.warmup.requests:  # else the first lines say that there was none
        rows.add_row("Warm-up", Text(warmup_sentence(run.warmup, summary.traced_over_warmup)))
    if summary.outside:
        outside = (f"{visible(part.name)} {units.duration(part.duration_ms)}" for part in summary.outside)
        rows.add_row("Outside", Text(", ".join(outside) + " (not in the total)"))
    return rows


def engaged_sentence(run: Run) -> str:
    """What was seen at work, beside what was asked for; offloading is named whenever it is on."""
    asked, seen = run.workload, run.engaged
    attention = "not seen" if seen.attention is None else visible(seen.attention)
    if asked.load_format == AS_LOADED:
        parts = [f"attention {attention}", _compiled(run)]
        parts.append("offload at work" if run.transfers else "no offload seen")
    else:
        parts = [f"attention {attention} (asked: {visible(asked.attention_backend)})", _compiled(run)]
        parts.append(f"offload {visible(asked.offload)}")
    if seen.gemm_dtype:
        parts.append(f"GEMMs in {visible(seen.gemm_dtype)}")
    if seen.graph_replays:
        parts.append(units.counted(seen.graph_replays, "graph replay"))
    return ", ".join(parts)


def _compiled(run: Run) -> str:
    asked, seen = run.workload.compile, run.engaged
    if run.workload.load_format == AS_LOADED and seen.compiled_modules:
        text = units.counted(seen.compiled_modules, "compiled module")
    elif seen.compiled_modules is None:
        text = f"compile {asked} asked, not seen"
    elif seen.compiled_modules:
        text = f"{units.counted(seen.compiled_modules, 'compiled module')} (asked: {asked})"
    else:
        text = "nothing compiled" if asked == "none" else f"NOTHING COMPILED though {asked} was asked for"
    if seen.compile_events:
        text += f", {units.counted(seen.compile_events, 'compilation')} DURING the call"
    return text


FASTER_THAN_WARM = 0.8
"""A traced step that takes less of the warm-up's last step than this says that the warm-up was not over: a
profiler makes nothing faster, and steps of one kind differ by 10 % (``step_statistics.UNIFORM_SPREAD``)."""


def warmup_sentence(warmup: Warmup | None, traced_over_warmup: float | None) -> str:
    """What was done before, whether a steady state was reached, and what a profiler has made of it."""
    if warmup is None or warmup.requests == 0:
        reason = f" ({visible(warmup.reason)})" if warmup is not None and warmup.reason else ""
        return f"none{reason}: what is only done once is in these times"
    head = f"{units.counted(warmup.requests, 'request')} of {units.counted(warmup.steps_each, 'step')}"
    state = "steady" if warmup.steady else "NOT steady"
    text = f"{head}, {state}: {visible(warmup.reason)}"
    if traced_over_warmup is None:
        return text
    if traced_over_warmup < FASTER_THAN_WARM:
        slower = units.ratio(1 / traced_over_warmup)
        return f"{text}; but its last step took {slower} the time of a traced one: something in it was slow"
    return f"{text}; a traced step took {units.ratio(traced_over_warmup)} the time of its last step"


def _stage_rows(summary: RunSummary, run: Run) -> Iterator[tuple[str | float | None, ...]]:
    shown = summed_times(summary.stages)
    sums = any(row.times > 1 for row in shown)
    for row in shown:
        stage = row.stage
        indices = {one.stage_index for one in row.occurrences}
        moved_ns = [move.duration_ns for move in run.transfers if move.stage_index in indices]
        yield (
            stage.name,
            row.times if sums else None,
            stage.duration_ms,
            stage.share,
            stage.device_ms,
            stage.host_ms,
            sum(moved_ns) / 1e6 if moved_ns else None,
            stage.inferred_ms or None,
        )
    for other in not_in_stages(summary):
        yield other.name, None, other.duration_ms, other.share, None, None, None, None


def _transfer_row(transfer: Transfer) -> tuple[str | float | bool | None, ...]:
    exposed_ns = transfer.exposed_ns
    return (
        visible(transfer.component),
        str(transfer.kind),
        transfer.count,
        transfer.bytes,
        transfer.pinned,
        transfer.duration_ns / 1e6,
        transfer.bytes / transfer.duration_ns if transfer.duration_ns else None,
        None if exposed_ns is None else exposed_ns / 1e6,
    )


def file_lines(run: Run, files: RunFiles) -> str:
    """One line a file, never wrapped, so that a script finds the path, and the command that reads it."""
    lines = [
        f"Saved {output.kind} to: {Path(output.path).resolve()}"
        for output in run.outputs
        if output.path is not None
    ]
    lines += [f"Saved profiler traces to: {trace.path}" for trace in run.traces]
    to_read = [trace.path for trace in run.traces]
    if files.perf_dump is not None:
        lines.append(f"Metrics dumped to: {files.perf_dump.resolve()}")
        to_read.append(str(files.perf_dump.resolve()))
    if files.run_directory is not None:
        lines.append(f"Saved run to: {files.run_directory.resolve()}")
        to_read = [str(files.run_directory.resolve())]
    if to_read:
        lines.append(f"Next: stepscope report {' '.join(map(shlex.quote, to_read))}")
    return "".join(f"{visible(line)}\n" for line in lines)
