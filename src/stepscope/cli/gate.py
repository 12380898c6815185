"""``stepscope gate``: budgets for CI."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from stepscope.cli.output import (
    add_output_options,
    chosen_format,
    deliver,
    on_github,
    rendered,
)
from stepscope.cli.values import a_path
from stepscope.model.errors import UsageError

if TYPE_CHECKING:
    from stepscope.analyse.comparison.gate_results import GateReport

FORMATS = ("terminal", "json", "md", "junit", "github")


class GateCommand:
    """Hold runs against budgets: exit status 1 when one is broken.

    Budgets by GPU model, rules, and a rolling baseline from a history of good runs; see docs/compare.md.
    """

    name = "gate"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Budgets, runs, history and where the result goes."""
        parser.add_argument("dumps", nargs="+", type=a_path, metavar="RUN", help="perf dumps or run folders")
        parser.add_argument("--budget", type=a_path, required=True, metavar="TOML", help="the budget file")
        parser.add_argument(
            "--trace",
            action="append",
            type=a_path,
            default=[],
            metavar="FILE",
            help="the run's trace, for rules on it; again for each rank or run",
        )
        parser.add_argument("--history", type=a_path, metavar="JSONL", help="the rolling baseline's history")
        parser.add_argument("--record", action="store_true", help="add these runs to the history")
        parser.add_argument("--junit", type=a_path, metavar="XML", help="write JUnit XML there as well")
        parser.add_argument(
            "--github", action="store_true", help="print GitHub annotations as well, one a broken budget"
        )
        add_output_options(parser, FORMATS)

    def run(self, arguments: argparse.Namespace) -> int:
        """Judge, show, and say by the exit status whether every budget was kept."""
        from stepscope.session.gate import GateOptions, run_gate

        if arguments.record and arguments.history is None:
            raise UsageError("--record needs a history to write to.", remedy="Give --history FILE.")
        report = run_gate(
            GateOptions(
                budget=arguments.budget,
                dumps=tuple(arguments.dumps),
                traces=tuple(arguments.trace),
                history=arguments.history,
                record=arguments.record,
            )
        )
        chosen = chosen_format(arguments, FORMATS)
        inert = (arguments.github or on_github()) and chosen != "github"
        deliver(_rendered(report, chosen), arguments.output, inert=inert)
        if arguments.junit is not None:
            deliver(_rendered(report, "junit"), arguments.junit)
        if arguments.github:
            deliver(_rendered(report, "github"), None, inert=False)
        return 0 if report.passed else 1


def _rendered(report: GateReport, chosen: str) -> str:
    from stepscope.render.comparison import gate_github, gate_json, gate_junit, gate_terminal

    return rendered(
        report,
        chosen,
        terminal=gate_terminal.render_gate_terminal,
        others={
            "json": gate_json.render_gate_json,
            "md": gate_terminal.render_gate_markdown,
            "junit": gate_junit.render_gate_junit,
            "github": gate_github.render_gate_github,
        },
    )
