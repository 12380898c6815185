"""``stepscope run``: somebody else's program, observed."""

from __future__ import annotations

import argparse

from stepscope.cli.observed_command import add_command_options, observe_command
from stepscope.model.errors import UsageError


class RunCommand:
    """Run a command and observe the engines in its Python processes: SGLang, vLLM-Omni, diffusers.

    No file of the engine is touched; workers that it spawns or forks are observed too. Everything after -- is
    the command: stepscope run --perf-dump-path perf.json -- sglang generate ...
    """

    name = "run"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Our options, then the command."""
        add_command_options(parser)
        parser.add_argument("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")

    def run(self, arguments: argparse.Namespace) -> int:
        """The command's own exit status."""
        command = [*arguments.command_line]
        if command and command[0] == "--":
            command = command[1:]
        if not command:
            raise UsageError("no command was given.", remedy="Try: stepscope run -- sglang generate ...")
        return observe_command(arguments, command)
