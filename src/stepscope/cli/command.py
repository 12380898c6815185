"""The shape of a command: one file, a parser and a few lines of wiring."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Protocol

Outcome = int | Callable[[], int]
"""An exit status, or what main is to do outside of its error handling: run somebody else's program."""


class Command(Protocol):
    """A subcommand. The class docstring's first line is its help; the whole docstring its description."""

    name: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        ...

    def run(self, arguments: argparse.Namespace) -> Outcome:
        """Do the work and return the outcome. Errors are raised, never printed."""
        ...
