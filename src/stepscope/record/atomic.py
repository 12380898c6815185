"""Files that appear whole or not at all: written beside their place under a temporary name, then renamed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepscope.model.errors import RunFailedError

NAME_CHARACTERS = 50
"""Of the final name in the temporary one: a name that just fits has no room for more."""

TRACE_ENDING = ".trace.json.gz"


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes the name when the block ends without an exception.

    Parents are created. On any exception the temporary file is removed and what stood at ``path`` stays.

    Raises:
        RunFailedError: the directory cannot be created or written, or the disk is full.

    """
    path = _target(path)
    if not path.name:  # "." and "/"
        raise cannot_write(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    temporary = path.with_name(f".{path.name[:NAME_CHARACTERS]}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        _remove(temporary)


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` as the whole of ``path``. Raises RunFailedError as ``atomic_path`` does.

    A device or a pipe (``/dev/stdout``) is written to as it is: it cannot be replaced, only destroyed.
    """
    if is_special(path):
        try:
            path.write_bytes(content)
        except OSError as error:
            raise cannot_write(path, error) from error
        return
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def keep_existing(path: Path) -> Path | None:
    """Rename what stands at ``path`` to the first free numbered name; None where nothing stands there.

    A dump keeps the name a user gave it, and the dump of an earlier run is kept too.

    Raises:
        RunFailedError: the file cannot be renamed.

    """
    path = _target(path)
    if not path.is_file():
        return None
    kept = free_path(path.with_name(f"{path.stem}.previous{path.suffix}"))
    try:
        path.rename(kept)
    except OSError as error:
        raise cannot_write(path, error) from error
    return kept


def is_special(path: Path) -> bool:
    """Whether ``path`` is there and neither a file nor a folder: a device, a pipe, a socket."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False  # nothing there, or nothing that can be: writing it will say so
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _target(path: Path) -> Path:
    """Where a symbolic link leads, so that the link stays one; a loop is left for the writing to report."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError):
        return path


def free_path(path: Path) -> Path:
    """``path``, or the first of ``name-1.ext``, ``name-2.ext``, ... that does not exist yet.

    A trace's whole ending stays an ending: viewers look at it.
    """
    ending = TRACE_ENDING if path.name.endswith(TRACE_ENDING) else path.suffix
    name = path.name.removesuffix(ending)
    candidate, number = path, 0
    while os.path.exists(candidate):  # noqa: PTH110  pathlib's raises for a name that is too long
        number += 1
        candidate = path.with_name(f"{name}-{number}{ending}")
    return candidate


def check_writable(directory: Path) -> None:
    """Fail before the work rather than after it: write a file where ``directory`` is or will be made.

    Nothing is left behind, the directory itself included.

    Raises:
        RunFailedError: the directory cannot be created or written, or the disk is full.

    """
    probe = Path()
    try:
        whole = directory.absolute()  # fails where the current folder has been removed
        there = next(path for path in (whole, *whole.parents) if path.exists())
        probe = there / f".stepscope-{os.getpid()}.tmp"
        probe.write_bytes(b"\0" * 4096)
    except OSError as error:
        raise cannot_write(directory, error) from error
    finally:
        if probe.name:
            _remove(probe)


def _remove(path: Path) -> None:
    """Remove ``path`` if it is there; a parent that is no directory means that it is not."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def cannot_write(path: Path, error: OSError) -> RunFailedError:
    """The error for a file that could not be written, with what to do about it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            remedy = "The disk is full: free some space or choose another directory."
        case errno.EFBIG:
            remedy = "The file is larger than is allowed here: choose another directory."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            remedy = "The directory is not writable: choose another one."
        case errno.ENOTDIR | errno.EEXIST:
            remedy = "Part of that path is a file: choose another directory."
        case errno.ENAMETOOLONG:
            remedy = "The name is too long for this file system: choose a shorter one."
        case _:
            remedy = "Choose another place."
    return RunFailedError(f"cannot write {path}: {error.strerror or error}.", remedy=remedy)
