"""The log beside the records: what was wrong with us in an observed process, which goes on without us."""

from __future__ import annotations

import os
from pathlib import Path

from stepscope.model.spool_layout import LOG


def say(folder: Path, line: str) -> None:
    """Add a line to the log of a folder of records; nothing if it cannot be written."""
    try:
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"{os.getpid()}: {line}\n")
    except OSError:
        pass
