"""Where a command's result goes: to the terminal, or whole into a file."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from stepscope.cli.values import a_path
from stepscope.model.errors import RunFailedError

ReportT = TypeVar("ReportT")


def add_output_options(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """``--format`` (the first is the default) and ``--output``."""
    parser.add_argument(
        "--format",
        choices=formats,
        help=f"default: by the suffix of --output, else {formats[0]}",
    )
    parser.add_argument(
        "-o", "--output", type=a_path, metavar="PATH", help="write there instead of to the terminal"
    )


def chosen_format(arguments: argparse.Namespace, formats: Sequence[str]) -> str:
    """The format asked for, else the one that the suffix of ``--output`` stands for, else the first."""
    if arguments.format:
        return str(arguments.format)
    suffixes = {
        ".json": ("json",), ".md": ("markdown", "md"), ".html": ("html",), ".xml": ("junit",),
        ".csv": ("csv",),
    }  # fmt: skip
    suffix = arguments.output.suffix.lower() if arguments.output else ""
    return next((name for name in suffixes.get(suffix, ()) if name in formats), formats[0])


def colour_wanted() -> bool:
    """Whether standard output is a terminal that takes colour."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def terminal_width(most: int = 110) -> int:
    """Columns to use: the terminal's, at most ``most``; ``most`` on a pipe."""
    if not sys.stdout.isatty():
        return most
    try:
        return max(60, min(os.get_terminal_size(sys.stdout.fileno()).columns, most))
    except OSError:
        return most


def rendered(
    report: ReportT,
    chosen: str,
    *,
    terminal: Callable[..., str],
    others: Mapping[str, Callable[[ReportT], str]],
) -> str:
    """The report in the chosen format; the terminal's view is told how wide it may be and if in colour."""
    if chosen == "terminal":
        return terminal(report, width=terminal_width(), colour=colour_wanted())
    return others[chosen](report)


def on_github() -> bool:
    """Whether a GitHub runner reads what we print."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def deliver(text: str, path: Path | None, *, inert: bool | None = None) -> None:
    """Print ``text``, or write it whole to ``path`` and say where on standard error.

    Where ``inert``, what is printed holds no workflow command; by default on a GitHub runner.

    Raises:
        RunFailedError: the file cannot be written.

    """
    if path is None:
        if on_github() if inert is None else inert:
            from stepscope.render.comparison.gate_github import without_commands

            text = without_commands(text)
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        return
    from stepscope.record.atomic import write_atomic

    write_atomic(path, text.encode("utf-8", "backslashreplace"))
    say(f"written to {path.resolve()}")


@contextmanager
def every_character_printable() -> Iterator[None]:
    """Write escapes for what the encoding of standard output lacks: a file's name is no reason to fail."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.errors != "strict":
        yield
        return
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        with suppress(OSError):  # a stream that takes nothing any more fails when it is flushed
            stream.reconfigure(errors="strict")


def output_is_broken() -> bool:
    """Whether standard output takes nothing any more (a full disk), tried; then what waits is given up."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        discard_output()
        return True
    return False


def cannot_print(error: OSError) -> RunFailedError:
    """What is said where ``output_is_broken``."""
    return RunFailedError(
        f"standard output cannot be written: {error.strerror}.", remedy="Send it somewhere else."
    )


def discard_output() -> None:
    """Keep the interpreter from flushing what was not taken, which would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """One line on standard error. It may quote a file or its name: nothing in it reaches the terminal raw."""
    from stepscope.render.names import visible

    print(f"stepscope: {visible(text)}", file=sys.stderr)
