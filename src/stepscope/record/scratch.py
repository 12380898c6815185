"""A temporary directory for what another tool must have as a plain file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepscope.model.errors import RunFailedError


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A fresh directory, removed with all in it afterwards.

    Raises:
        RunFailedError: there is no place for one.

    """
    try:
        directory = tempfile.TemporaryDirectory(prefix="stepscope-", ignore_cleanup_errors=True)
    except OSError as error:
        raise no_room(Path(tempfile.gettempdir()), error) from error
    with directory as path:
        yield Path(path)


def no_room(place: Path, error: OSError) -> RunFailedError:
    """The error for a temporary file that could not be written."""
    return RunFailedError(
        f"cannot write a temporary file in {place}: {error.strerror or error}.",
        remedy="Free some space there, or point TMPDIR elsewhere.",
    )
