"""``stepscope requests``: the requests of an observed engine, while it serves or afterwards."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from stepscope.cli.values import a_path, step_count
from stepscope.model.errors import UsageError

if TYPE_CHECKING:
    from stepscope.session.engines.command import Tracing


class RequestsCommand:
    """Show the requests that an observed engine has recorded, and choose which of the next are traced.

    DIR is the folder that stepscope run --records DIR, or the variable STEPSCOPE, names. Tracing is switched
    on and off while the engine serves: it looks at a file in DIR before each request.
    """

    name = "requests"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """The folder, where files go, and what to trace."""
        parser.add_argument("records", type=a_path, metavar="DIR", help="where the engine's processes record")
        parser.add_argument(
            "--perf-dump-path", type=a_path, metavar="PATH", help="a perf dump for each request"
        )
        parser.add_argument(
            "--profile-dir", type=a_path, metavar="DIR", help="cut the traces and put them here"
        )
        parser.add_argument(
            "--run-dir", type=a_path, metavar="DIR", help="a folder for each request's record"
        )
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("--trace-next", type=int, metavar="N", help="trace the next N requests")
        chosen.add_argument(
            "--trace-request", nargs="+", metavar="ID", help="trace the requests of these ids"
        )
        chosen.add_argument("--trace-off", action="store_true", help="trace no further request")
        parser.add_argument(
            "--num-profiled-timesteps", type=step_count, default=5, metavar="N", help="-1: all steps"
        )
        parser.add_argument("--profile-all-stages", action="store_true", help="trace everything of a request")

    def run(self, arguments: argparse.Namespace) -> int:
        """Set the tracing if that was asked for, else show what there is."""
        from stepscope.session.engines.command import FILTERED, set_tracing

        if not arguments.records.is_dir():
            raise UsageError(
                f"{arguments.records} is no folder.",
                remedy="Give the one of stepscope run --records, or of the variable STEPSCOPE. If an"
                f" engine ran with that variable: {FILTERED}.",
            )
        if arguments.trace_off or arguments.trace_next is not None or arguments.trace_request:
            set_tracing(arguments.records, _tracing(arguments))
            return 0
        return _show(arguments)


def _tracing(arguments: argparse.Namespace) -> Tracing | None:
    from stepscope.session.engines.command import Tracing

    if arguments.trace_off:
        return None
    if arguments.trace_next is not None and arguments.trace_next < 1:
        raise UsageError(f"--trace-next {arguments.trace_next}: 1 or more.", remedy="--trace-off stops it.")
    return Tracing(
        steps=arguments.num_profiled_timesteps,
        all_stages=arguments.profile_all_stages,
        next=arguments.trace_next,
        request_ids=tuple(arguments.trace_request or ()),
    )


def _show(arguments: argparse.Namespace) -> int:
    from stepscope.cli.observed_command import lines_of
    from stepscope.record.spool_reader import read_spool
    from stepscope.render.names import sentence, visible
    from stepscope.session.engines.collect import Destination, collect
    from stepscope.session.engines.command import NOTHING_RECORDED, alive, trouble

    content = read_spool(arguments.records)
    problems = list(content.problems)
    to = Destination(perf_dump=arguments.perf_dump_path, traces=arguments.profile_dir, runs=arguments.run_dir)
    for line in lines_of(collect(content, to, problems.append)):
        print(line)
    for pid, request_id in content.unfinished:
        if alive(pid):
            print(visible(f"process {pid} is at request {sentence(request_id)}"))
    for problem in (*problems, *trouble(content, unseen=NOTHING_RECORDED)):
        print(f"stepscope: warning: {visible(problem)}", file=sys.stderr)
    return 0
