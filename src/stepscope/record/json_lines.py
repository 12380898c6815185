"""JSON Lines files that survive a kill: each line is synced, and a half-written last one harms nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from stepscope.model.encodable import encodable
from stepscope.model.errors import UnreadableInputError
from stepscope.record.atomic import cannot_write
from stepscope.record.input_file import read_small_file

T = TypeVar("T")
_LONGEST_LINE_BYTES = 1 << 20
_LARGEST_BYTES = 1 << 30


def read_lines(path: Path, kind: type[T]) -> tuple[T, ...]:
    """Every line as a ``kind``, oldest first; none without a file. A cut-off last line is left out.

    Raises:
        UnreadableInputError: the file cannot be read, or a line before the last is no ``kind``.

    """
    if not path.exists():
        return ()
    lines = read_small_file(path, _LARGEST_BYTES).split(b"\n")
    entries = []
    for number, line in enumerate(lines, start=1):
        entry = _entry(line, kind)
        if entry is not None:
            entries.append(entry)
        elif line.strip() and number < len(lines):
            raise UnreadableInputError(
                f"{path} line {number} cannot be read as {kind.__name__}.", remedy="Is it the right file?"
            )
    return tuple(entries)


def check_appendable(path: Path) -> None:
    """Fail before the work rather than after it.

    Raises:
        RunFailedError: the file cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error


def append_line(path: Path, entry: object) -> None:
    """Add ``entry`` as a line, on the disk when this returns; a half-written line before it is cut off.

    Raises:
        RunFailedError: the file cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            stream.write(_mended(path, stream.tell()) + _line(entry) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise cannot_write(path, error) from error


def _line(entry: object) -> bytes:
    try:
        return msgspec.json.encode(entry)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(msgspec.to_builtins(entry)))


def _mended(path: Path, size: int) -> bytes:
    """Cut off a half-written last line; give the line feed that a whole one lacks."""
    with path.open("rb+") as stream:
        stream.seek(max(size - _LONGEST_LINE_BYTES, 0))
        tail = stream.read().rpartition(b"\n")[2]
        if not tail:
            return b""
        if _is_json(tail):
            return b"\n"
        stream.truncate(size - len(tail))
        return b""


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return False
    return True


def _entry(line: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
