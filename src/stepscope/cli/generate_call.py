"""A call of ``generate`` inside another command's line: the words after ``--``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from stepscope.cli.config_file import with_config
from stepscope.cli.generate_flags import NOT_HERE, SIZES, add_flags
from stepscope.cli.parser import Parser
from stepscope.model.errors import UsageError

NOT_FLAGS = frozenset({"config", "size", "log_level"})
OURS = ("profile", "perf_dump_path", "run_dir", "output_file_name", "output_file_path")
"""Flags that the outer command sets itself."""


def add_call(parser: argparse.ArgumentParser) -> None:
    """The words after ``--``."""
    parser.add_argument(
        "call",
        nargs=argparse.REMAINDER,
        metavar="-- generate ...",
        help="the generation to run, as stepscope generate takes it",
    )


def call_words(arguments: argparse.Namespace) -> list[str]:
    """The flags of the call, without ``--`` and ``generate`` before them."""
    words = [str(word) for word in arguments.call]
    if words[:1] == ["--"]:
        words = words[1:]
    if words and words[0] != "generate" and not words[0].startswith("-"):
        raise UsageError(
            f"only generate can be measured by this command, not {words[0]}.",
            remedy="A script: several times 'stepscope run --run-dir base1 SCRIPT' (base2, ..., new1, ...), "
            "then "
            "'stepscope compare base1,base2,base3 new1,new2,new3'.",
        )
    if words[:1] != ["generate"]:
        raise UsageError(
            "the generation to run is missing.", remedy='Give it after --, as in: -- generate --prompt "..."'
        )
    return words[1:]


def generate_flags(words: Sequence[str], *, origin: str) -> dict[str, Any]:
    """The flags in ``words`` as ``session.generate_flags`` takes them; ``origin`` names them in errors.

    Raises:
        UsageError: a flag that generate does not have, or one that the outer command sets itself.

    """
    parser = Parser(prog=origin, add_help=False, argument_default=argparse.SUPPRESS)
    parser.elsewhere = NOT_HERE
    add_flags(parser)
    arguments = with_config(parser.parse_args(list(words)), add_flags)
    flags = {name: value for name, value in vars(arguments).items() if name not in NOT_FLAGS}
    for name in OURS:
        if name in flags:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is set by this command itself.", remedy="Leave it out.")
    if (size := getattr(arguments, "size", None)) is not None:
        width, height = SIZES[size]
        flags = {"width": width, "height": height} | flags
    return flags


def split_flags(text: str) -> list[str]:
    """Flags given as one argument, split as a shell does."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text!r} cannot be split into flags: {error}.") from error
