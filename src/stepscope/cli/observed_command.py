"""``stepscope run -- COMMAND``: options and what is printed of the requests that were observed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.session.engines.collect import ObservedRequest

MOST_SHOWN = 20


def add_command_options(parser: argparse.ArgumentParser) -> None:
    """The options of a command that is run observed."""
    parser.add_argument("--perf-dump-path", type=Path, metavar="PATH", help="a perf dump for each request")
    parser.add_argument("--profile", action="store_true", help="trace every request")
    parser.add_argument("--num-profiled-timesteps", type=int, default=5, metavar="N", help="-1: all steps")
    parser.add_argument("--profile-all-stages", action="store_true", help="with --profile: everything")
    parser.add_argument("--profile-dir", type=Path, metavar="DIR", help="where traces go (default: ./logs)")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="a folder for each request's run record")
    parser.add_argument("--records", type=Path, metavar="DIR", help="keep the processes' own records here")


def observe_command(arguments: argparse.Namespace, command: list[str]) -> int:
    """Run it, write what was asked for, say what was seen; the status is the command's own."""
    from stepscope.session.destinations import profile_directory
    from stepscope.session.engines.collect import Destination
    from stepscope.session.engines.command import Tracing, run_command

    tracing = None
    if arguments.profile:
        tracing = Tracing(steps=arguments.num_profiled_timesteps, all_stages=arguments.profile_all_stages)
    to = Destination(
        perf_dump=arguments.perf_dump_path,
        traces=arguments.profile_dir or profile_directory(os.environ),
        runs=arguments.run_dir,
    )
    outcome = run_command(command, to, tracing, arguments.records)
    for line in lines_of(outcome.requests):
        print(line, file=sys.stderr)
    for problem in outcome.problems:
        print(f"stepscope: warning: {problem}", file=sys.stderr)
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
    run, dump = request.run, request.dump
    parts = [f"{request.engine} {run.request_id[:8]}"]
    if run.world_size > 1:
        parts[0] += f" rank {run.rank}"
    parts.append(f"{len(run.steps)} steps")
    parts.append(f"pipeline {dump.total_duration_ms:.1f} ms")
    parts += [f"{item.name} {item.duration_ms:.1f} ms" for item in dump.outside_stages]
    if request.wall_ns is not None and request.missing_ns is not None:
        parts.append(
            f"client's wall {request.wall_ns / 1e6:.1f} ms, {request.missing_ns / 1e6:.1f} ms of it unknown"
        )
    if request.cache is not None:
        parts.append(f"{len(request.cache.cached_steps)} steps from a cache")
    if run.incomplete_reason:
        parts.append(f"incomplete: {run.incomplete_reason}")
    if dump.trust is not None and not dump.trust.ok:
        parts.append("untrusted: " + "; ".join(dump.trust.reasons))
    return ", ".join(parts)
