"""Reads what torch.profiler exported as a stream of events' bytes, without building it in memory.

The file is split where one event object ends and the next begins, the same place in every layout that Kineto
has had; an event that is not JSON (an unescaped quote in a name, NaN) costs itself and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stepscope.model.errors import UnreadableInputError

CHUNK_BYTES = 4 * 1024**2
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat)"\s*:)')
_ARRAY_END = re.compile(rb"\}\s*\]")


class Part(Enum):
    """What a piece of an export is."""

    HEADER = auto()  # everything before the first event, as an object of its own
    EVENT = auto()
    FOOTER = auto()  # the keys after the last event, as an object of its own


class EventArguments(msgspec.Struct, gc=False, frozen=True):
    """The few arguments that decide whether an event is kept."""

    correlation: int | None = None


class Event(msgspec.Struct, gc=False, frozen=True):
    """One trace event, typed; times in microseconds with three decimals, as the format has them."""

    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str = 0
    tid: int | str = 0
    id: int | str | None = None
    args: EventArguments | None = None

    @property
    def start_ns(self) -> int:
        return round(self.ts * 1000)

    @property
    def end_ns(self) -> int:
        return round(self.ts * 1000) + round(self.dur * 1000)


_DECODER = msgspec.json.Decoder(Event)


def decode_event(raw: bytes) -> Event | None:
    """The event, or None where its bytes are not the JSON of one."""
    try:
        return _DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def split_export(path: Path) -> Iterator[tuple[Part, bytes]]:
    """The header, every event and the footer of an uncompressed export, in this order.

    A file that was cut off has no footer, and its last event is most likely not JSON.

    Raises:
        UnreadableInputError: the file has no ``traceEvents`` array.

    """
    with path.open("rb") as stream:
        header, rest = _read_header(stream, path)
        yield Part.HEADER, header
        while chunk := stream.read(CHUNK_BYTES):
            rest += chunk
            start = 0
            for boundary in _BOUNDARY.finditer(rest):
                yield Part.EVENT, rest[start : boundary.start() + 1]
                start = boundary.end()
            rest = rest[start:]
        yield from _split_tail(rest)


def decode_keys(part: bytes) -> dict[str, Any]:
    """The keys of a header or footer; an empty dict where they are not JSON (old unquoted NCCL strings)."""
    try:
        return msgspec.json.decode(part, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def read_keys(path: Path) -> dict[str, Any]:
    """The keys before the first event of an export. Raises UnreadableInputError as ``split_export`` does."""
    with path.open("rb") as stream:
        return decode_keys(_read_header(stream, path)[0])


def _read_header(stream: BinaryIO, path: Path) -> tuple[bytes, bytes]:
    content = b""
    while chunk := stream.read(CHUNK_BYTES):
        content += chunk
        if match := _EVENTS_KEY.search(content):
            keys = content[: match.start()].strip().rstrip(b",") + b"}"
            stream.seek(match.end())
            return keys, b""
    raise UnreadableInputError(f"{path} holds no traceEvents.", remedy="It is not a PyTorch Profiler export.")


def _split_tail(rest: bytes) -> Iterator[tuple[Part, bytes]]:
    """The last events and the footer."""
    start = 0
    for boundary in _BOUNDARY.finditer(rest):
        yield Part.EVENT, rest[start : boundary.start() + 1]
        start = boundary.end()
    end = _array_end(rest, start)
    event = rest[start : None if end is None else end[0]].strip()
    if event.startswith(b"{"):
        yield Part.EVENT, event
    if end is not None:
        yield Part.FOOTER, b"{" + rest[end[1] :].strip().lstrip(b",")


def _array_end(rest: bytes, start: int) -> tuple[int, int] | None:
    """Where the last event ends and where the array does; None where the file was cut off.

    The footer may hold lists of objects too, so the first place is taken that leaves a whole event; of a last
    event that is not JSON, the last place.
    """
    if rest[start:].lstrip().startswith(b"]"):
        return start, rest.index(b"]", start) + 1
    found = None
    for match in _ARRAY_END.finditer(rest, start):
        found = (match.start() + 1, match.end())
        if decode_event(rest[start : found[0]]) is not None:
            break
    return found
