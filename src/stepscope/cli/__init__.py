"""The command line: an explicit list of commands and the one place where errors are printed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from stepscope import __version__
from stepscope.cli.bench import BenchCommand
from stepscope.cli.command import Command, Outcome
from stepscope.cli.compare import CompareCommand
from stepscope.cli.doctor import DoctorCommand
from stepscope.cli.gate import GateCommand
from stepscope.cli.generate import GenerateCommand
from stepscope.cli.models import ModelsCommand
from stepscope.cli.nsys import NsysCommand
from stepscope.cli.output import (
    cannot_print,
    discard_output,
    every_character_printable,
    output_is_broken,
    say,
)
from stepscope.cli.parser import Parser
from stepscope.cli.report import ReportCommand
from stepscope.cli.requests import RequestsCommand
from stepscope.cli.run import RunCommand
from stepscope.cli.schema import SchemaCommand
from stepscope.cli.slice import SliceCommand
from stepscope.cli.sweep import SweepCommand
from stepscope.cli.view import ViewCommand
from stepscope.model.errors import StepscopeError, Terminated

COMMANDS: tuple[Command, ...] = (
    GenerateCommand(),
    ModelsCommand(),
    RunCommand(),
    RequestsCommand(),
    ReportCommand(),
    NsysCommand(),
    SliceCommand(),
    ViewCommand(),
    DoctorCommand(),
    CompareCommand(),
    BenchCommand(),
    SweepCommand(),
    GateCommand(),
    SchemaCommand(),
)


def build_parser() -> argparse.ArgumentParser:
    """The whole parser, every command included; imports nothing heavy."""
    parser = Parser(prog="stepscope", description="Know where the time goes in diffusion inference.")
    parser.add_argument("--version", action="version", version=f"stepscope {__version__}")
    # prog is given because argparse would build a formatter, and import rich, to find it out
    subparsers = parser.add_subparsers(prog="stepscope", dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        description = type(command).__doc__ or ""
        subparser = subparsers.add_parser(
            command.name,
            help=description.splitlines()[0] if description else None,
            description=description,
        )
        command.prepare_parser(subparser)
        subparser.set_defaults(entrypoint=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the only place that prints errors and decides the exit status."""
    _open_closed_streams()
    try:
        with every_character_printable():
            arguments = build_parser().parse_args(argv)
            outcome: Outcome = arguments.entrypoint(arguments)
            sys.stdout.flush()
    except StepscopeError as error:
        say(f"error: {error}")
        return error.exit_status
    except KeyboardInterrupt as stop:
        by_signal = isinstance(stop, Terminated)
        print(f"stepscope: {f'ended by {stop}' if by_signal else 'interrupted'}", file=sys.stderr)
        return stop.exit_status if isinstance(stop, Terminated) else 130
    except BrokenPipeError:
        discard_output()  # the reader (head, less) went away: not our failure
        return 141
    except OSError as error:
        if not output_is_broken():
            raise
        say(f"error: {cannot_print(error)}")
        return 1
    return outcome if isinstance(outcome, int) else outcome()


def _open_closed_streams() -> None:
    """Give a process started without standard streams (``>&-``) empty ones.

    Otherwise printing fails, and the next file that is opened takes the number of standard error: what
    libraries print there would land in a trace.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "r" if number == 0 else "w", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, name, stream)
            try:
                os.fstat(number)
            except OSError:
                os.dup2(stream.fileno(), number)
