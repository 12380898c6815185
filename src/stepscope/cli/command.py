"""The shape of a command: one file, a parser and a few lines of wiring."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """A subcommand. The class docstring's first line is its help; the whole docstring its description."""

    name: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do the work and return the exit status. Errors are raised, never printed."""
        ...
