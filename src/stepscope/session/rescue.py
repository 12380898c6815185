"""A second place for what its own place does not take: a folder of its own among the temporary files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stepscope.model.errors import RunFailedError

PREFIX = "stepscope-kept-"
ROOM_BYTES = 4 << 30
"""More than an export mostly is: where so much is free, nobody has to look elsewhere."""

Written = TypeVar("Written")


def scratch_parent(beside: Path) -> Path:
    """Where a profiler's export goes until it is cut: beside the trace, or where there is more room.

    Kineto writes an export once; what does not fit is lost.
    """
    elsewhere = Path(tempfile.gettempdir())
    free = shutil.disk_usage(beside).free
    if free < ROOM_BYTES and shutil.disk_usage(elsewhere).free > free:
        return elsewhere
    return beside


def or_elsewhere(
    write: Callable[[Path], Written], folder: Path, told: Callable[[str], None]
) -> tuple[Written, RunFailedError | None]:
    """Write into ``folder``; where that fails, elsewhere, and give the failure beside what was written.

    ``told`` is given the line that says where it is. Raises the first failure where both places fail.
    """
    try:
        return write(folder), None
    except RunFailedError as error:
        try:
            second = Path(tempfile.mkdtemp(prefix=PREFIX))
        except OSError:
            raise error from None
        try:
            written = write(second)
        except (RunFailedError, OSError):
            shutil.rmtree(second, ignore_errors=True)
            raise error from None
        told(f"what could not be written to {folder} is in {second}")
        return written, error
