"""What is shown on standard error while ``generate`` works: nothing, unless it is a terminal."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from stepscope.session.generate_options import Listener


class TerminalListener:
    """One line that says what is being done, replaced as work goes on."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status

    def loading(self, what: str, done: int, total: int) -> None:
        """Say which component is being loaded."""
        self._status.update(f"loading {what} ({done} of {total})")

    def warming_up(self, number: int, at_most: int) -> None:
        """Say that the warm-up runs."""
        self._status.update(f"warming up, request {number + 1} of {at_most} at most")

    def mapping(self) -> None:
        """Say that the mapping pass runs."""
        self._status.update("finding out which line makes which call")

    def running(self, request_id: str, number: int, total: int) -> None:
        """Leave the line to the pipeline's own bar."""
        self._status.stop()
        if total > 1:
            self._console.print(f"prompt {number + 1} of {total}: {request_id}", highlight=False)

    def forecast(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False)

    def warning(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False)


class PlainListener:
    """Only what must be known beforehand, for logs and pipes."""

    def loading(self, what: str, done: int, total: int) -> None:
        """Say nothing."""

    def warming_up(self, number: int, at_most: int) -> None:
        """Say nothing."""

    def mapping(self) -> None:
        """Say nothing."""

    def running(self, request_id: str, number: int, total: int) -> None:
        """Say nothing."""

    def forecast(self, text: str) -> None:
        """Print it."""
        print(text, file=sys.stderr)

    def warning(self, text: str) -> None:
        """Print it."""
        print(text, file=sys.stderr)


@contextmanager
def terminal_listener() -> Iterator[Listener]:
    """A listener that suits standard error."""
    if not sys.stderr.isatty():
        yield PlainListener()
        return
    from rich.console import Console

    console = Console(stderr=True, markup=False)
    with console.status("starting") as status:
        yield TerminalListener(console, status)


def quiet_libraries(level: str) -> None:
    """Let libraries log from ``level`` on; their notices about themselves are not a user's business."""
    logging.basicConfig(level=level.upper(), stream=sys.stderr)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read when torch is imported; it writes to stderr itself
    if level not in {"debug", "info"}:
        warnings.filterwarnings("ignore")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
