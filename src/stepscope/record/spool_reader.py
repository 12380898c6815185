"""Reads what observed engine processes have written; a record that is no record costs only itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from stepscope.model.engine_record import CallRecord, ClientRecord, ProcessRecord
from stepscope.model.file_names import NAME_BYTES
from stepscope.model.spool_layout import CALLS, CLIENTS, LOG, PROCESSES, RAW, RUNNING

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
    return SpoolContent(
        calls=tuple(_placed(call, folder) for call in _read(folder / CALLS, CallRecord, problems)),
        clients=tuple(_read(folder / CLIENTS, ClientRecord, problems)),
        processes=tuple(_read(folder / PROCESSES, ProcessRecord, problems)),
        unfinished=tuple(_running(folder / RUNNING)),
        log=_log(folder / LOG),
        problems=tuple(problems),
        started=(folder / PROCESSES).is_dir(),
    )


def _running(folder: Path) -> Iterator[tuple[int, str]]:
    for path in sorted(folder.glob("*")):
        if path.name.isascii() and path.name.isdigit():
            with suppress(OSError):  # it is done while we look
                yield int(path.name), path.read_text(encoding="utf-8", errors="replace")


def _placed(call: CallRecord, folder: Path) -> CallRecord:
    """The record with its export where this folder has it: a folder is moved, or seen from another machine.

    No other place is believed, because an export is taken away when it has been cut.
    """
    raw = call.raw_trace
    if raw is None:
        return call
    return replace(call, raw_trace=replace(raw, path=str(folder / RAW / Path(raw.path).name[:NAME_BYTES])))


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
