"""What the values of flags may look like."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from stepscope.model.errors import UsageError
from stepscope.model.file_names import possible_path

TRUE = frozenset({"true", "1", "yes", "on"})
MOST = 2**31 - 1
"""What sizes and counts may be: torch's kernels count in 32 bits."""
FALSE = frozenset({"false", "0", "no", "off"})


EVERY_CALL = 2**62
"""The end of a range of calls that is left open."""


def boolean(text: str) -> bool:
    """``true`` or ``false`` in the spellings people use."""
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def a_path(text: str) -> Path:
    """A path that a file system can have; whether something is there is seen when it is used."""
    try:
        return possible_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} cannot be a path: {error}") from error


def positive(text: str) -> int:
    """A whole number above zero."""
    number = _integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above zero")
    if number > MOST:
        raise argparse.ArgumentTypeError(f"{number} is more than {MOST}")
    return number


def finite(text: str) -> float:
    """A number that is one: NaN and infinity make a picture of nothing and a record of null."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return number


def megabytes(text: str) -> float:
    """A size above zero."""
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size above zero")
    return size


def step_count(text: str) -> int:
    """How many steps to trace: a positive number, or -1 for all."""
    number = _integer(text)
    if number != -1 and number < 1:
        raise argparse.ArgumentTypeError(f"{number} is neither a positive number of steps nor -1 (all)")
    return number


def call_numbers(text: str) -> tuple[range, ...]:
    """Calls by number, 0-based: ``2``, ``0,3`` or half-open ``2:5``, separated by commas."""
    chosen = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        start = _integer(first) if first or not colon else 0
        stop = start + 1 if not colon else _integer(last) if last else EVERY_CALL
        if not 0 <= start < stop:
            raise argparse.ArgumentTypeError(f"{part!r} holds no call: they are counted from 0, as in 2:5")
        chosen.append(range(start, stop))
    return tuple(chosen)


def json_object(text: str) -> dict[str, Any]:
    """A JSON object, as ``--diffusers-kwargs '{"strength": 0.5}'`` has it."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def _no_constant(name: str) -> Any:
    message = f"{name} is no number"
    raise ValueError(message)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def add_switch(group: argparse._ArgumentGroup, flag: str, *, default: bool | str, text: str) -> None:
    """Add a flag that takes ``true`` or ``false``, and stands for ``true`` alone: ``--warmup``."""
    shown = default if isinstance(default, str) else ("true" if default else "false")
    group.add_argument(
        flag, nargs="?", const=True, type=boolean, metavar="BOOL", help=f"{text} (default: {shown})"
    )


def check_together(first: str, second: str, *, both: bool) -> None:
    """Raise UsageError where two flags that exclude each other were both given."""
    if both:
        raise UsageError(f"{first} and {second} exclude each other.", remedy="Give one of them.")
