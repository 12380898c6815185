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
    """The last events and the footer; the array's end is searched from the back: only keys follow it."""
    ends = list(_ARRAY_END.finditer(rest))
    cut = ends[-1] if ends else None
    events = rest if cut is None else rest[: cut.start() + 1]
    start = 0
    for boundary in _BOUNDARY.finditer(events):
        yield Part.EVENT, events[start : boundary.start() + 1]
        start = boundary.end()
    if events[start:].strip().startswith(b"{"):
        yield Part.EVENT, events[start:]
    if cut is not None:
        yield Part.FOOTER, b"{" + rest[cut.end() :].strip().lstrip(b",")
