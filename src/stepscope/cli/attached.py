"""What is shown of the calls of an attached program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from stepscope.session.held_call import HeldCall


def show_calls(held: Sequence[HeldCall], count: int, stream: TextIO) -> None:
    """One call in full; of several a line each, the files, and what to do next."""
    from stepscope.analyse.run.summarise import summarise
    from stepscope.render.report.calls_summary import CallSeen, write_calls_summary
    from stepscope.render.report.run_summary import RunFiles, write_run_summary

    calls = [call.kept for call in held]
    if count == 1:
        [call] = calls
        files = RunFiles(perf_dump=call.dump_path, run_directory=call.run_directory)
        write_run_summary(summarise(call.dump), call.run, files, stream)
        return
    seen = [
        CallSeen(
            summary=summarise(call.dump),
            run=call.run,
            files=RunFiles(perf_dump=call.dump_path, run_directory=call.run_directory),
        )
        for call in calls
    ]
    write_calls_summary(seen, count, stream)
