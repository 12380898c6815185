"""What may be read at all: regular files, and folders whose entries can be listed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from stepscope.model.errors import UnreadableInputError

_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "node_modules"})


def is_directory(path: Path) -> bool:
    """Whether a path is a directory; if not, it is a regular file.

    Reading a pipe or a device could wait for ever, and a pipe cannot be read twice: once to recognise it.

    Raises:
        UnreadableInputError: nothing is there, it may not be looked at, or it is a pipe, socket or device.

    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise UnreadableInputError(f"{path} does not exist.", remedy="Check the path.") from error
    except OSError as error:
        raise cannot_read(path, error) from error
    if stat.S_ISDIR(mode):
        return True
    if not stat.S_ISREG(mode):
        raise UnreadableInputError(
            f"{path} is a pipe or a device, not a file.", remedy="Save what comes out of it to a file first."
        )
    return False


def read_small_file(path: Path, limit_bytes: int) -> bytes:
    """The content of a file that people write or that is small by nature.

    Raises:
        UnreadableInputError: it cannot be read, is no file, or is larger than ``limit_bytes``.

    """
    if is_directory(path):
        raise UnreadableInputError(f"{path} is a directory.", remedy="Give a file in it.")
    try:
        with path.open("rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise cannot_read(path, error) from error
    if len(content) > limit_bytes:
        raise too_large(path, limit_bytes)
    return content


def files_below(directory: Path) -> Iterator[Path]:
    """Regular files below a directory in order; hidden ones and directories of caches are left out.

    Links to directories are not followed, so there is no way round in a circle.

    Raises:
        UnreadableInputError: a directory cannot be listed.

    """
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise cannot_read(directory, error) from error
    for path in entries:
        if path.name.startswith(".") or path.name in _SKIPPED_DIRECTORIES:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path)
        elif path.is_file():
            yield path


def cannot_read(path: Path, error: OSError) -> UnreadableInputError:
    """The error for a path that the system refuses."""
    return UnreadableInputError(
        f"cannot read {path}: {error.strerror or error}.", remedy="Check the path and its permissions."
    )


def too_large(path: Path, limit_bytes: int) -> UnreadableInputError:
    """The error for a file that is larger, inflated, than anything of its kind."""
    return UnreadableInputError(
        f"{path} holds more than {limit_bytes >> 20} MiB.", remedy="Is it the right file?"
    )
