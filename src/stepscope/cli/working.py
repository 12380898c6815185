"""One line on a terminal that says what a long command is busy with; nothing on a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stepscope.render.names import visible

if TYPE_CHECKING:
    from rich.status import Status


class StatusListener:
    """Shows the newest line only."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def doing(self, text: str) -> None:
        """Replace the line."""
        self._status.update(visible(text))

    def happened(self, text: str) -> None:
        """Print a line above it."""
        self._status.console.print(f"stepscope: {visible(text)}")


class LogListener:
    """One line after the other, for logs."""

    def doing(self, text: str) -> None:
        """Print it to standard error."""
        print(f"stepscope: {visible(text)}", file=sys.stderr, flush=True)

    happened = doing


@contextmanager
def working() -> Iterator[StatusListener | LogListener]:
    """A listener for standard error as it is."""
    if not sys.stderr.isatty():
        yield LogListener()
        return
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False)
    with console.status("starting") as status:
        yield StatusListener(status)
