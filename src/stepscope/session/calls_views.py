"""Calls of a program as people see them: at a terminal, as a page, in a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stepscope.analyse.results import Report
from stepscope.analyse.run.summarise import summarise
from stepscope.model.dump import PerfDump
from stepscope.model.run import Run
from stepscope.render.report.calls_summary import CallSeen, render_calls_summary
from stepscope.render.report.run_summary import RunFiles, render_run_summary
from stepscope.session.report import report_calls

NO_CALL = (
    "no call was seen. Call the pipeline inside the block; code that is no diffusers pipeline is measured "
    "inside: with stepscope.call(name)."
)
FRAME_HEIGHT_PX = 640


class MeasuredCall(Protocol):
    """What the views need of a call."""

    @property
    def run(self) -> Run: ...

    @property
    def dump(self) -> PerfDump: ...

    @property
    def trace_path(self) -> Path | None: ...

    @property
    def run_directory(self) -> Path | None: ...


def calls_text(calls: Sequence[MeasuredCall], count: int, problems: Sequence[str] = ()) -> str:
    """One call in full, of several a line each; then the newest trace's report, and what went wrong."""
    from stepscope.render.report.report_terminal import render_terminal

    seen = [_seen(call) for call in calls]
    if not seen:
        text = f"stepscope: {NO_CALL}\n"
    elif count == 1:
        text = render_run_summary(seen[0].summary, seen[0].run, seen[0].files)
    else:
        text = render_calls_summary(seen, count)
    traced = _newest_traced(calls)
    if traced is not None and traced.trace_path is not None:
        report = report_calls([], [traced.trace_path])
        if traced.run_directory is None:
            report = replace(report, source=())  # no commands for a file that goes with the session
        text += f"\nThe trace of call {traced.run.call_id}:\n\n{render_terminal(report)}"
    return text + "".join(f"stepscope: warning: {problem}\n" for problem in problems)


def calls_page(calls: Sequence[MeasuredCall]) -> str:
    """Every call on one page, with the newest trace's report."""
    from stepscope.render.report.report_html import render_html

    return render_html(_report(calls))


def inline_html(page: str) -> str:
    """A page inside another: a frame with nothing but its own script, cut off from the notebook around it."""
    return (
        f'<iframe title="stepscope report" sandbox="allow-scripts" width="100%" height="{FRAME_HEIGHT_PX}" '
        f'style="border:1px solid #8884" srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )


def _report(calls: Sequence[MeasuredCall]) -> Report:
    traced = _newest_traced(calls)
    return report_calls(
        [call.dump for call in calls],
        [] if traced is None or traced.trace_path is None else [traced.trace_path],
    )


def _newest_traced(calls: Sequence[MeasuredCall]) -> MeasuredCall | None:
    readable = [call for call in calls if call.trace_path is not None and call.trace_path.exists()]
    return readable[-1] if readable else None


def _seen(call: MeasuredCall) -> CallSeen:
    """Files of a session that has not been saved are not named: they go with it."""
    run = call.run if call.run_directory is not None else replace(call.run, traces=())
    return CallSeen(summary=summarise(call.dump), run=run, files=RunFiles(run_directory=call.run_directory))
