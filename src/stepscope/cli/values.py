"""What the values of flags may look like."""

from __future__ import annotations

import argparse
import json
from typing import Any

from stepscope.model.errors import UsageError

TRUE = frozenset({"true", "1", "yes", "on"})
FALSE = frozenset({"false", "0", "no", "off"})


def boolean(text: str) -> bool:
    """``true`` or ``false`` in the spellings people use."""
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def positive(text: str) -> int:
    """A whole number above zero."""
    number = _integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above zero")
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


def json_object(text: str) -> dict[str, Any]:
    """A JSON object, as ``--diffusers-kwargs '{"strength": 0.5}'`` has it."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


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
