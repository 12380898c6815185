"""Cuts a Kineto trace into header, events and tail while it is being inflated, whatever its layout.

Three layouts exist: libkineto's pretty print, ``json.dump(indent=2)`` and one line; metadata stands before
or after the events. A stretch is cut at the last boundary between events, validated by parsing it, and
carried over to the next one where it does not parse.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

from stepscope.record.kineto.event import (
    BOUNDARY,
    EVENTS,
    EXACT_EVENTS,
    Decoded,
    Decoder,
    Event,
    decode_events,
)
from stepscope.record.kineto.repeated_keys import RepeatedKeys
from stepscope.record.kineto.time import EXACT_BELOW_US
from stepscope.record.reader_warnings import WarningLog

STRETCH_BYTES = 1 << 19  # larger ones are slower: the events of one no longer fit the cache
MAX_HEADER_BYTES = 1 << 26
_BOUNDARY_WINDOW = 1 << 16
_LONGEST_BOUNDARY = 1 << 8
_MAX_STRETCH_BYTES = 1 << 24  # an event that is longer is none

EVENTS_KEY = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_BARE_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_KEPT_FOR_KEY = 1 << 12  # the key may lie across two blocks
_SAMPLE_BYTES = 120
_LARGE_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{13,18})')


class KinetoStream:
    """Iterates once over lists of decoded events; ``header`` and ``tail`` hold the text around them.

    ``found_events`` tells whether there was an event array at all; all three are complete after iteration.
    """

    def __init__(self, blocks: Iterable[bytes], log: WarningLog) -> None:
        self.header = b""
        self.tail = b""
        self.found_events = False
        self._blocks = iter(blocks)
        self._log = log
        self._carried = False
        self._decoder: Decoder | None = None
        self._repeated_keys = RepeatedKeys(log)

    def __iter__(self) -> Iterator[list[Event]]:
        pending = self._read_header()
        if not self.found_events:
            return
        parts, size, wanted = [pending], len(pending), STRETCH_BYTES
        for block in self._blocks:
            parts.append(block)
            size += len(block)
            if size < wanted:
                continue
            pending = b"".join(parts)
            cut = _last_boundary(pending)
            if cut is None and size < _MAX_STRETCH_BYTES:
                parts, wanted = [pending], 2 * size  # what has no boundary is not looked through every time
                continue
            stretch, rest = (pending[: cut[0]], pending[cut[1] :]) if cut else (pending, b"")
            decoded = self._decode(stretch)
            pending = self._carry(decoded, rest)
            yield decoded.events
            if decoded.tail is not None:
                self._read_tail(decoded.tail + b"," + rest if cut else decoded.tail)
                return
            if cut is None and not decoded.events:
                pending = self._after_next_boundary()
            parts, size, wanted = [pending], len(pending), STRETCH_BYTES
        yield self._last(b"".join(parts))

    def _after_next_boundary(self) -> bytes:
        """Leave out the rest of an event without end, as a whole: nothing in it is looked at."""
        if self._carried:
            self._log.add(
                "malformed_event", f"an event of more than {_MAX_STRETCH_BYTES >> 20} MiB was skipped"
            )
        self._carried = False
        text = b""
        for block in self._blocks:
            text = text[-_LONGEST_BOUNDARY:] + block
            found = BOUNDARY.search(text)
            if found:
                return text[found.end(1) :]
        return b""

    def _decode(self, stretch: bytes) -> Decoded:
        """The first stretch tells whether the file's times need every digit."""
        if self._decoder is None:
            self._decoder = EXACT_EVENTS if has_large_times(stretch) else EVENTS
        decoded = decode_events(stretch, self._decoder)
        if not decoded.skipped and not decoded.mended:
            events = stretch if decoded.tail is None else stretch[: len(stretch) - len(decoded.tail)]
            self._repeated_keys.look_at(events.rstrip(b"] \t\r\n"), len(decoded.events))
        return decoded

    def _read_header(self) -> bytes:
        """Consume blocks up to the opening bracket of the events; returns what follows it."""
        head = b""
        searched = 0
        for block in self._blocks:
            head += block
            found = EVENTS_KEY.search(head, searched) or _BARE_ARRAY.match(head)
            if found:
                self.found_events = True
                self.header = head[: found.start()]
                return head[found.end() :]
            searched = max(len(head) - _KEPT_FOR_KEY, 0)
            if len(head) > MAX_HEADER_BYTES:
                break
        self.header = head
        return b""

    def _read_tail(self, start: bytes) -> None:
        """Keep what follows the events; more than a header's worth of it is not metadata."""
        parts, size = [start], len(start)
        for block in self._blocks:
            if size > MAX_HEADER_BYTES:
                break
            parts.append(block)
            size += len(block)
        self._set_tail(b"".join(parts))

    def _set_tail(self, tail: bytes) -> None:
        self.tail = tail
        if EVENTS_KEY.search(tail):
            self._log.add("second_events", "the file holds a second list of events; only the first was read")

    def _carry(self, decoded: Decoded, rest: bytes) -> bytes:
        """Note what was skipped; a fault at the cut is tried once more together with what follows."""
        again = decoded.ends_in_fault and not self._carried
        self._carried = again
        if again:
            rest = decoded.skipped.pop() + b"," + rest
        self._note(decoded)
        return rest

    def _last(self, pending: bytes) -> list[Event]:
        """Decode what is left at the end of the file: a cut event there is not malformed, but missing."""
        if not pending.strip():
            self._log.add("truncated", _TRUNCATED)
            return []
        decoded = self._decode(pending)
        if decoded.tail is None:
            self._log.add("truncated", _TRUNCATED)
            if decoded.ends_in_fault:
                decoded.skipped.pop()
        else:
            self._set_tail(decoded.tail)
        self._note(decoded)
        return decoded.events

    def _note(self, decoded: Decoded) -> None:
        for event in decoded.skipped:
            sample = " ".join(event[:_SAMPLE_BYTES].decode(errors="replace").split())
            self._log.add("malformed_event", f"an event that is not valid JSON was skipped: {sample}")
        self._log.add(
            "mended", "NaN, raw control characters or bad UTF-8 in the file were mended", decoded.mended
        )


def has_large_times(text: bytes) -> bool:
    """Whether events at the start of a file have times that a double does not hold to the nanosecond."""
    return any(int(digits) >= EXACT_BELOW_US for digits in _LARGE_TIME.findall(text, 0, _BOUNDARY_WINDOW))


_TRUNCATED = "the file ends before its events do; what precedes the cut was read"


def _last_boundary(text: bytes) -> tuple[int, int] | None:
    """End of the last whole event, and start of what follows its comma; None if there is no boundary."""
    for start in (max(len(text) - _BOUNDARY_WINDOW, 0), 0):
        matches = deque(BOUNDARY.finditer(text, start), maxlen=1)
        if matches:
            return matches[0].span(1)
    return None
