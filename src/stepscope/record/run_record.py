"""The run record: a whole ``Run`` as JSON, the file from which everything else can be made again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.model.errors import UnreadableInputError
from stepscope.model.run import RUN_SCHEMA_VERSION, Run
from stepscope.record.atomic import write_atomic
from stepscope.record.input_file import read_small_file
from stepscope.record.json_text import encoded

RUN_FILE = "run.json"
_LARGEST_BYTES = 1 << 28


class _Version(msgspec.Struct):
    schema_version: int


def encode_run(run: Run) -> bytes:
    """The run as indented JSON; times stay integer nanoseconds."""
    return msgspec.json.format(encoded(run), indent=2) + b"\n"


def write_run(run: Run, path: Path) -> Path:
    """Write the record whole or not at all. Raises RunFailedError where the path cannot be written."""
    write_atomic(path, encode_run(run))
    return path


def read_run(path: Path) -> Run:
    """Read a record that ``write_run`` wrote.

    Raises:
        UnreadableInputError: no such file, not a run record, or one of another schema version.

    """
    content = read_small_file(path, _LARGEST_BYTES)
    try:
        version = msgspec.json.decode(content, type=_Version).schema_version
        if version != RUN_SCHEMA_VERSION:
            raise UnreadableInputError(
                f"{path} has schema version {version}; this stepscope reads {RUN_SCHEMA_VERSION}.",
                remedy="Use the stepscope that wrote it, or record the run again.",
            )
        return msgspec.json.decode(content, type=Run)
    except msgspec.MsgspecError as error:
        raise UnreadableInputError(
            f"{path} is not a stepscope run record: {error}.",
            remedy="A run directory's run.json is expected.",
        ) from error
