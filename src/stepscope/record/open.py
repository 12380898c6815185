"""Opens any trace: recognises what a file is and reads it with the right reader, into the same ``Trace``."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from stepscope.model.errors import UnreadableInputError
from stepscope.model.trace import Trace
from stepscope.record.input_file import files_below
from stepscope.record.kineto.reader import read_kineto
from stepscope.record.nsight.export import exported
from stepscope.record.nsight.reader import read_nsight
from stepscope.record.recognise import InputKind, recognise
from stepscope.record.trace_parts import rank_in_name
from stepscope.record.unpacked import unpacked

__all__ = ["InputKind", "TraceFile", "TraceGroup", "read_trace", "recognise", "traces_in"]

TRACE_KINDS = frozenset({InputKind.KINETO, InputKind.NSIGHT_SQLITE, InputKind.NSIGHT_REPORT})
_EXTENSIONS = re.compile(r"(?:\.(?:pt|trace|json|gz|zst|sqlite|nsys-rep|qdrep|nsys|chrome))+$", re.IGNORECASE)
_RANK = re.compile(r"[-_.]?(?:global[-_.]?)?rank[-_]?\d{1,6}(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One trace in a directory; it has not been read yet."""

    path: Path
    kind: InputKind
    rank: int | None  # from the name; the trace itself may know better


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGroup:
    """The traces of one request: the same name but for the rank. Ordered by rank."""

    name: str
    files: tuple[TraceFile, ...]


def read_trace(path: Path) -> Trace:
    """Read one trace of any kind: Kineto JSON or Nsight Systems, plain, gzip or zstd.

    Raises:
        UnreadableInputError: it is no trace, or nothing in it can be read; the remedy says what to do.
        RunFailedError: a packed Nsight Systems export does not fit the temporary directory.

    """
    kind = recognise(path)
    match kind:
        case InputKind.KINETO:
            return read_kineto(path)
        case InputKind.NSIGHT_SQLITE | InputKind.OTHER_SQLITE:
            with unpacked(path) as database:
                return _as_read_from(path, read_nsight(database))
        case InputKind.NSIGHT_REPORT:
            with exported(path) as database:
                return _as_read_from(path, read_nsight(database))
        case InputKind.DIRECTORY:
            raise UnreadableInputError(f"{path} is a directory, not a trace.", remedy=_named_files(path))
        case _:
            raise UnreadableInputError(
                f"{path} is no trace: it is {kind.value}.", remedy=_REMEDIES.get(kind, _ANY)
            )


def traces_in(directory: Path) -> list[TraceGroup]:
    """All traces below a directory, grouped by request and ordered by name and rank.

    Raises:
        UnreadableInputError: it holds no trace.

    """
    groups: dict[str, list[TraceFile]] = {}
    for path in files_below(directory):
        kind = _kind_or_none(path)
        if kind in TRACE_KINDS:
            name = str(path.parent.relative_to(directory) / request_name(path))
            groups.setdefault(name, []).append(TraceFile(path=path, kind=kind, rank=rank_in_name(path)))
    if not groups:
        raise UnreadableInputError(
            f"{directory} holds no trace.", remedy="Record one with generate --profile."
        )
    return [
        TraceGroup(name=name, files=tuple(sorted(files, key=lambda f: (f.rank or 0, f.path.name))))
        for name, files in sorted(groups.items())
    ]


def request_name(path: Path) -> str:
    """A trace's file name without rank and extensions: what the ranks of one request share."""
    return _RANK.sub("", _EXTENSIONS.sub("", path.name)) or path.name


_ANY = "Give a .trace.json(.gz), a Nsight Systems .sqlite or .nsys-rep, or a perf dump."
_REMEDIES = {
    InputKind.EMPTY: "Nothing was written to it: record the trace again.",
    InputKind.PERF_DUMP: "A dump holds stage and step times, no kernels: give the trace beside it.",
    InputKind.RUN_RECORD: "It holds stage and step times, no kernels: give the trace beside it.",
}


def _kind_or_none(path: Path) -> InputKind | None:
    try:
        return recognise(path)
    except UnreadableInputError:
        return None


def _named_files(directory: Path) -> str:
    names = [path.name for path in files_below(directory)][:3]
    return f"Give one of its files: {', '.join(names)}." if names else "It is empty."


def _as_read_from(path: Path, trace: Trace) -> Trace:
    """The trace under the name that the user gave, not that of a temporary file."""
    rank = rank_in_name(path) if trace.rank is None else trace.rank
    return dataclasses.replace(trace, path=str(path), rank=rank)
