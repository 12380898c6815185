"""What a file system can have as a name: what users give as paths, and names made of other people's text."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

NAME_BYTES = 255
"""The longest name that common file systems have."""
_LONGEST_MADE = 120
"""Of a name made of foreign text: prefix, suffix and number are still to come."""
_ELSEWHERE = re.compile(r"[^\w.+=@,-]|^\.+|^$")


def possible_path(text: str | Path) -> Path:
    """The path that a text names. Raises ValueError where no file system can have it."""
    path = Path(text)
    if "\0" in str(path):
        raise ValueError("it holds a NUL character")
    if any(len(os.fsencode(part)) > NAME_BYTES for part in path.parts):
        raise ValueError("a name in it is too long")
    return path


def as_file_name(text: str) -> str:
    """A name for foreign text, such as a request's id: no separator, not hidden, not too long.

    Text that is such a name stays as it is; of any other the name ends in a digest, so that two stay two.
    """
    name = _ELSEWHERE.sub("_", text)
    if name == text and len(name.encode()) <= _LONGEST_MADE:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    short = name.encode("utf-8", "replace")[: _LONGEST_MADE - len(digest) - 1].decode("utf-8", "ignore")
    return f"{short}-{digest}"
