"""Calls of a program as people see them: at a terminal, as a page, in a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stepscope.analyse.results import Report, Trust
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
    """One call in full, of several a line each; then what the newest trace shows, and what went wrong.

    Whether a call may be trusted is said once, its trace taken into account.
    """
    from stepscope.render.report.report_terminal import render_trace_part

    traced = _newest_traced(calls)
    report = None if traced is None else _report_of_traced(traced)
    trust = {} if traced is None or report is None else {id(traced): report.trust}
    seen = [_seen(call, trust.get(id(call))) for call in calls]
    if not seen:
        text = f"stepscope: {NO_CALL}\n"
    elif count == 1:
        text = render_run_summary(seen[0].summary, seen[0].run, seen[0].files)
    else:
        text = render_calls_summary(seen, count)
    if traced is not None and report is not None:
        text += f"\nThe trace of call {traced.run.call_id}:\n\n{render_trace_part(report)}"
    told = {warning for call in seen for warning in call.run.warnings}  # each is said with its call
    return text + "".join(f"stepscope: warning: {one}\n" for one in problems if one not in told)


def _report_of_traced(call: MeasuredCall) -> Report | None:
    """One report of a call's times and its trace, each held against the other."""
    if call.trace_path is None:
        return None
    report = report_calls([call.dump], [call.trace_path])
    # There is no other call or trace to tell these from.
    own, traced = f"{call.dump.request_id}: ", f"{call.trace_path.name}: "
    reasons = tuple(
        reason.removeprefix(own).replace(traced, "the trace: ", 1) for reason in report.trust.reasons
    )
    warnings = tuple(warning.removeprefix(traced) for warning in report.warnings)
    report = replace(report, trust=replace(report.trust, reasons=reasons), warnings=warnings)
    # No commands for a file that goes with the session.
    return report if call.run_directory is not None else replace(report, source=())


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


def _seen(call: MeasuredCall, trust: Trust | None) -> CallSeen:
    """Files of a session that has not been saved are not named: they go with it."""
    run = call.run if call.run_directory is not None else replace(call.run, traces=())
    summary = summarise(call.dump)
    if trust is not None:
        summary = replace(summary, trust=trust)
    return CallSeen(summary=summary, run=run, files=RunFiles(run_directory=call.run_directory))
