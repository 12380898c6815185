"""Folders for commands that leave many files."""

from __future__ import annotations

import time
from pathlib import Path

from stepscope.model.errors import UsageError
from stepscope.record.atomic import cannot_write, check_writable


def fresh_folder(asked: Path | None, name: str) -> Path:
    """The folder asked for, which has to be empty, or a new one named after the time.

    Raises:
        UsageError: there is something in it.
        RunFailedError: it cannot be written.

    """
    folder = asked or Path(f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise cannot_write(folder, error) from error
    if taken:
        raise UsageError(f"{folder} is not empty.", remedy="Give another --dir; nothing is overwritten.")
    check_writable(folder)
    return folder
