"""Scratch folders beside traces: a killed process leaves gigabytes there, and the next one clears them away.

A folder is in use while its owner holds a lock on a file in it; the system lets go of that when the owner
dies, however it dies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

fcntl: Any = import_module("fcntl") if os.name == "posix" else None  # elsewhere nothing is cleared away

SCRATCH_PREFIX = ".stepscope-"
_LOCK = "lock"


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Mark the folder as in use for as long as this process lives and is inside."""
    with (folder / _LOCK).open("wb") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_abandoned(directory: Path) -> None:
    """Remove the scratch folders in ``directory`` whose owner is gone; those that cannot be removed stay."""
    for folder in directory.glob(f"{SCRATCH_PREFIX}*"):
        if folder.is_dir() and not folder.is_symlink() and _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    """Whether nobody holds the lock. Without one the folder is not ours, or its owner is just making it."""
    if fcntl is None:
        return False
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
