"""A packed file as a plain one: SQLite and a writer that reads its input twice need it on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepscope.record.byte_stream import ByteStream, Packing, packing_of
from stepscope.record.scratch import no_room, scratch_directory


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A plain copy of a packed file in a temporary directory, or the file itself where it is plain.

    Raises:
        RunFailedError: the copy does not fit the temporary directory.

    """
    with path.open("rb") as file:
        if packing_of(file.read(4)) is Packing.PLAIN:
            yield path
            return
    with scratch_directory() as directory:
        plain = directory / "unpacked"
        _inflate(path, plain)
        yield plain


def _inflate(path: Path, plain: Path) -> None:
    try:
        with plain.open("wb") as copy:
            for block in ByteStream(path):
                copy.write(block)
    except OSError as error:
        raise no_room(plain.parent, error) from error
