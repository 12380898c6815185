"""Reads files of prompts, one a line."""

from __future__ import annotations

from pathlib import Path

from stepscope.model.errors import UnreadableInputError
from stepscope.record.input_file import read_small_file

_LARGEST_BYTES = 1 << 26


def read_prompts(path: Path) -> tuple[str, ...]:
    """The lines that are not blank, without a byte order mark, carriage returns and space at their ends.

    Raises:
        UnreadableInputError: it cannot be read, is no UTF-8 text, or holds no prompt.

    """
    content = read_small_file(path, _LARGEST_BYTES)
    try:
        lines = content.decode("utf-8-sig").split("\n")  # not at U+2028 and its like
    except UnicodeDecodeError as error:
        raise _no_text(path) from error
    if b"\0" in content:
        raise _no_text(path)
    prompts = tuple(line.strip() for line in lines if line.strip())
    if not prompts:
        raise UnreadableInputError(f"{path} holds no prompt.", remedy="One prompt a line.")
    return prompts


def _no_text(path: Path) -> UnreadableInputError:
    return UnreadableInputError(f"cannot read {path}: it is not UTF-8 text.", remedy="One prompt a line.")
