"""``stepscope nsys``: Nsight Systems on the right steps, explained at once."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from stepscope.cli.output import say
from stepscope.cli.parser import Parser
from stepscope.cli.values import a_path
from stepscope.model.errors import UsageError
from stepscope.model.step_range import StepRange
from stepscope.model.vocabulary import Stage

if TYPE_CHECKING:
    from stepscope.model.nsight import Diagnosis
    from stepscope.session.nsight.run import NsysOutcome

OBSERVED = ("generate", "run")
"""Our commands that observe a pipeline, and so can open and close a capture."""


class NsysCommand:
    """Profile a command with Nsight Systems, capturing only the steps or stage asked for, and explain it.

    The command follows after --: generate or run with their own flags, or any program. Without --steps or
    --stage the whole pipeline call is captured; loading and warm-up never are. Flags that are not listed here
    go to nsys as they are. The report is exported to SQLite beside itself, without the environment variables
    that nsys records, and explained as stepscope report does.
    """

    name = "nsys"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Our flags; all others are nsys's."""
        parser.usage = "stepscope nsys [flags] [nsys flags] -- COMMAND ..."
        if isinstance(parser, Parser):
            parser.takes_command = True
        window = parser.add_argument_group("what to capture")
        window.add_argument(
            "--steps", type=StepRange.parse, metavar="FIRST:END", help="denoising steps, END not included"
        )
        window.add_argument(
            "--stage", type=Stage, choices=list(Stage), metavar="STAGE", help=", ".join(Stage)
        )
        window.add_argument(
            "--delay", metavar="SECONDS", help="start that long after the command, by the clock"
        )
        window.add_argument("--duration", metavar="SECONDS", help="stop after that long; the command goes on")
        parser.add_argument(
            "--trace",
            "-t",
            metavar="LIST",
            help="as nsys has it (default: cuda,nvtx; nvtx where there is no GPU)",
        )
        parser.add_argument(
            "-o", "--output", metavar="NAME", help="report's name, passed on to nsys as it is"
        )
        parser.add_argument("--dry-run", action="store_true", help="print the nsys line and run nothing")
        parser.add_argument("--nsys", type=a_path, metavar="PATH", help="the nsys to use (default: on PATH)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Plan, run, explain. The status is the command's own, or 1 where nothing was captured."""
        from stepscope.session.nsight.run import NsysOptions, plan_nsys, profile_under_nsys

        if arguments.words is None:
            raise UsageError(
                "there is no -- before the command.", remedy="Write stepscope nsys [flags] -- COMMAND ..."
            )
        plan = plan_nsys(
            NsysOptions(
                command=arguments.words,
                own_commands=frozenset(OBSERVED),
                steps=arguments.steps,
                stage=arguments.stage,
                delay_s=arguments.delay,
                duration_s=arguments.duration,
                trace=tuple(arguments.trace.split(",")) if arguments.trace else None,
                output=arguments.output,
                passed_on=arguments.passed_on,
                nsys=arguments.nsys,
            ),
            dry=arguments.dry_run,
        )
        for note in plan.notes:
            print(f"stepscope: note: {note}", file=sys.stderr)
        if arguments.dry_run:
            print(shlex.join(plan.line.words))
            return 0
        print(f"stepscope: {shlex.join(plan.line.words)}", file=sys.stderr)
        outcome = profile_under_nsys(plan)
        _show(outcome)
        return outcome.exit_status


def _show(outcome: NsysOutcome) -> None:
    """The report on standard output; what went wrong, and where the files are, on standard error."""
    if outcome.report is not None:
        from stepscope.render.report.report_terminal import write_terminal

        write_terminal(outcome.report.report, sys.stdout)
        sys.stdout.flush()
    for diagnosis in outcome.diagnoses:
        _say(diagnosis)
    if outcome.run.report is not None:
        print(f"stepscope: report: {outcome.run.report} (open it with nsys-ui)", file=sys.stderr)
        print(
            "stepscope: note: it holds the environment variables of the process, as nsys writes them",
            file=sys.stderr,
        )
    if outcome.database is not None:
        print(f"stepscope: export: {outcome.database} (environment removed)", file=sys.stderr)


def _say(diagnosis: Diagnosis) -> None:
    word = "error" if diagnosis.fatal else "warning"
    say(f"{word}: {diagnosis.text} {diagnosis.remedy}".rstrip())
