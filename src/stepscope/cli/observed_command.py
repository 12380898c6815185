"""``stepscope run -- COMMAND``: options and what is printed of the requests that were observed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.model.errors import UsageError

if TYPE_CHECKING:
    from stepscope.session.engines.collect import ObservedRequest

MOST_SHOWN = 20
NOTICED_MS = 0.05
"""Less would read 0.0 ms."""


def observe_command(arguments: argparse.Namespace) -> int:
    """Run it, write what was asked for, say what was seen; the status is the command's own.

    Raises UsageError where the command is missing, or a flag is one that only a script can have.
    """
    from stepscope.render.names import visible
    from stepscope.session.destinations import profile_directory
    from stepscope.session.engines.collect import Destination
    from stepscope.session.engines.command import Tracing, run_command
    from stepscope.session.generate_options import PROFILED_STEPS

    if not arguments.program:
        raise UsageError("there is no command after --.", remedy="Try: stepscope run -- sglang generate ...")
    if arguments.call:
        raise UsageError("--call counts the calls of a script.", remedy="See stepscope requests --help.")
    if arguments.trace_detail:
        raise UsageError("--trace-detail is for a script.", remedy="An engine's requests are traced in full.")
    tracing = None
    if arguments.profile:
        steps = arguments.num_profiled_timesteps or PROFILED_STEPS
        tracing = Tracing(steps=steps, all_stages=arguments.profile_all_stages)
    to = Destination(
        perf_dump=arguments.perf_dump_path,
        traces=arguments.profile_dir or profile_directory(os.environ),
        runs=arguments.run_dir,
    )
    outcome = run_command(arguments.program, to, tracing, arguments.records)
    for line in lines_of(outcome.requests):
        print(line, file=sys.stderr)
    for problem in outcome.problems:
        print(f"stepscope: warning: {visible(problem)}", file=sys.stderr)
    return outcome.status


def lines_of(requests: tuple[ObservedRequest, ...]) -> Iterator[str]:
    """What each request took, the newest ``MOST_SHOWN`` of them, and the files written."""
    if len(requests) > MOST_SHOWN:
        yield f"stepscope: {len(requests)} requests observed; the last {MOST_SHOWN}:"
    for request in requests[-MOST_SHOWN:]:
        yield f"stepscope: {line_of(request)}"
        for trace in request.run.traces:
            yield f"Saved profiler traces to: {Path(trace.path).absolute()}"
        if request.dump_path is not None:
            yield f"Metrics dumped to: {request.dump_path}"


def line_of(request: ObservedRequest) -> str:
    """One request in one line: the pipeline call, what lay around it, and whether it all adds up."""
    from stepscope.render.names import visible
    from stepscope.render.report.answer import cache_sentence

    run, dump = request.run, request.dump
    parts = [f"{request.engine} {run.request_id[:8]}"]
    if run.world_size > 1:
        parts[0] += f" rank {run.rank}"
    parts.append(f"{len(run.steps)} steps")
    parts.append(f"pipeline {dump.total_duration_ms:.1f} ms")
    parts += [f"{item.name} {item.duration_ms:.1f} ms" for item in dump.outside_stages]
    if request.wall_ns is not None and request.missing_ns is not None:
        parts.append(wall_sentence(request.wall_ns / 1e6, request.missing_ns / 1e6))
    if run.step_cache is not None:
        parts.append(cache_sentence(run.step_cache, len(run.steps)))
    if run.incomplete_reason:
        parts.append(f"incomplete: {run.incomplete_reason}")
    if dump.trust is not None and not dump.trust.ok:
        parts.append("untrusted: " + "; ".join(dump.trust.reasons))
    return visible(", ".join(parts))


def wall_sentence(wall_ms: float, missing_ms: float) -> str:
    """The client's wall time and what of it has no name; a cancelled request's client waits no longer."""
    if missing_ms <= -NOTICED_MS:
        return f"client's wall {wall_ms:.1f} ms, {-missing_ms:.1f} ms less than was worked on it"
    return f"client's wall {wall_ms:.1f} ms, {max(0.0, missing_ms):.1f} ms of it unknown"
