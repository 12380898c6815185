"""Reads what observed engine processes have written; a record that is no record costs only itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from stepscope.model.engine_record import CallRecord, ClientRecord, ProcessRecord
from stepscope.model.spool_layout import CALLS, CLIENTS, LOG, PROCESSES, RUNNING

Record = TypeVar("Record")
MOST_LOG_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolContent:
    """All that was recorded below one folder, oldest first."""

    calls: tuple[CallRecord, ...]
    clients: tuple[ClientRecord, ...]
    processes: tuple[ProcessRecord, ...]
    unfinished: tuple[tuple[int, str], ...]  # (pid, request id): the process died at it, or is at it still
    log: tuple[str, ...]
    problems: tuple[str, ...]
    started: bool = True  # a Python process has seen the folder, whether or not it imported an engine


def read_spool(folder: Path) -> SpoolContent:
    """Read a spool folder; one that does not exist is empty."""
    problems: list[str] = []
    running = folder / RUNNING
    return SpoolContent(
        calls=tuple(_read(folder / CALLS, CallRecord, problems)),
        clients=tuple(_read(folder / CLIENTS, ClientRecord, problems)),
        processes=tuple(_read(folder / PROCESSES, ProcessRecord, problems)),
        unfinished=tuple(
            (int(path.name), path.read_text(encoding="utf-8", errors="replace"))
            for path in sorted(running.glob("*"))
            if path.name.isdigit()
        ),
        log=_log(folder / LOG),
        problems=tuple(problems),
        started=(folder / PROCESSES).is_dir(),
    )


def _read(folder: Path, kind: type[Record], problems: list[str]) -> list[Record]:
    paths = sorted(folder.glob("*.json"), key=lambda path: path.name.rpartition("-")[2])
    read = (_record(path, kind, problems) for path in paths)
    return [record for record in read if record is not None]


def _record(path: Path, kind: type[Record], problems: list[str]) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None  # the oldest records of a server go while we read
    except (OSError, msgspec.MsgspecError) as error:
        problems.append(f"{path} could not be read: {error}")
        return None


def _log(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(lines[:MOST_LOG_LINES])
