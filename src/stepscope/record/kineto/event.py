"""One Kineto event as msgspec decodes it, and the decoding of a stretch of events that may be malformed.

Only what the columns need is declared; msgspec skips the rest without building it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice

import msgspec

_NOTHING = msgspec.Raw(b"")
Identifier = int | str | float | None


class EventArgs(msgspec.Struct, gc=False, frozen=True):
    """The arguments that become columns. The recorder's own keys, all optional."""

    correlation: int = -1
    external_id: int = msgspec.field(default=0, name="External id")
    device: int | None = None
    stream: int | None = None
    bytes: int = -1
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int = msgspec.field(default=-1, name="registers per thread")
    shared_bytes: int = msgspec.field(default=-1, name="shared memory")
    occupancy_percent: float | None = msgspec.field(default=None, name="est. achieved occupancy %")
    graph_node: int = msgspec.field(default=0, name="graph node id")
    input_dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    input_types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    concrete_inputs: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")
    total_allocated: int = msgspec.field(default=-1, name="Total Allocated")
    total_reserved: int = msgspec.field(default=-1, name="Total Reserved")
    device_id: int = msgspec.field(default=-1, name="Device Id")
    device_type: int = msgspec.field(default=-1, name="Device Type")
    stepscope: bool = False  # one of our own spans
    thread: Identifier = msgspec.field(
        default=None, name="tid"
    )  # of one of our spans: whose launches it holds
    operator: msgspec.Raw = _NOTHING  # these six: on work that stepscope has mapped; others may use them too
    source: msgspec.Raw = _NOTHING
    module: msgspec.Raw = _NOTHING
    shape_index: msgspec.Raw = msgspec.field(default=_NOTHING, name="shapes")
    is_exact: msgspec.Raw = msgspec.field(default=_NOTHING, name="exact")
    goes_on: msgspec.Raw = msgspec.field(default=_NOTHING, name="continues")
    label: msgspec.Raw = msgspec.field(default=_NOTHING, name="name")  # of an M event


NO_ARGS = EventArgs()


class Event(msgspec.Struct, gc=False, frozen=True):
    """One element of ``traceEvents``; ``ts`` and ``dur`` in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Identifier = 0
    tid: Identifier = 0
    ts: float = 0.0
    dur: float = 0.0
    args: EventArgs | None = None


class ExactEvent(Event, gc=False, frozen=True):
    """For files whose times are too large for a double: ``ts`` keeps every digit, at half the speed."""

    ts: Decimal = Decimal(0)  # type: ignore[assignment]


Decoder = msgspec.json.Decoder[list[Event]]
EVENTS: Decoder = msgspec.json.Decoder(list[Event], strict=False)
EXACT_EVENTS: Decoder = msgspec.json.Decoder(list[ExactEvent], strict=False)

# The first key differs between recorders, and json.dump(sort_keys=True) puts args first.
BOUNDARY = re.compile(rb'\}\s*(,)\s*\{\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id|s|bp)"\s*:')
_EVENT_START = re.compile(r'\{\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id|s|bp)"\s*:')
_STARTS_TRIED = 1000  # bounds the time that a file made to be slow can take
_WALKED_BYTES = 1 << 20
_JSON = json.JSONDecoder()
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_AFTER_ARRAY = re.compile(rb'\s*(?:\}\s*$|,\s*"|$)')
_NOT_A_NUMBER = re.compile(rb"(?<=[:,\[])(\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_DIGITS = re.compile(r"-?\d{1,18}", re.ASCII)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_LAST_COMMA = re.compile(rb"\}\s*,\s*\]")
_SPACES_FOR_CONTROLS = bytes(0x20 if byte < 0x20 else byte for byte in range(256))
_JOINED_AT_MOST = 8
_FAULTS = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)


@dataclass(slots=True, kw_only=True)
class Decoded:
    """What a stretch of events gave. ``tail``: what follows the end of the array, None if it goes on."""

    events: list[Event] = field(default_factory=list)
    tail: bytes | None = None
    skipped: list[bytes] = field(default_factory=list)  # text of each event that could not be read
    ends_in_fault: bool = False  # the last of ``skipped`` is the stretch's end: perhaps only cut
    mended: int = 0


def decode_events(stretch: bytes, decoder: Decoder = EVENTS) -> Decoded:
    """Decode comma-separated events, without the array's brackets unless it ends inside.

    A malformed event is skipped alone; its neighbours are kept.
    """
    try:
        return Decoded(events=decoder.decode(b"[%b]" % stretch))
    except _FAULTS as fault:
        end = _array_end(stretch, fault)
    if end is not None:
        try:
            return Decoded(events=decoder.decode(b"[%b" % stretch[:end]), tail=stretch[end:])
        except _FAULTS:
            pass
    return _Salvage(stretch, decoder).run()


def _array_end(stretch: bytes, fault: BaseException) -> int | None:
    """Where the array closes inside ``stretch`` (just after its bracket), told by where msgspec stopped."""
    found = _TRAILING.search(str(fault))
    if found is None:
        return None
    # The reported byte is the first after the bracket that is not white space; one opening bracket was added.
    end = stretch.rfind(b"]", 0, max(int(found[1]) - 1, 0)) + 1
    return end if end and _AFTER_ARRAY.match(stretch, end) else None


class _Salvage:
    """Reads a stretch that does not parse as a whole: mends what is known, then halves down to the fault."""

    def __init__(self, stretch: bytes, decoder: Decoder) -> None:
        self.decoder = decoder
        self.text, mended = _mend(stretch)
        self.found = Decoded(mended=mended)
        commas = [match.start(1) for match in BOUNDARY.finditer(self.text)]
        self.starts = [0, *(comma + 1 for comma in commas)]
        self.ends = [*commas, len(self.text)]
        self.faults: list[int] = []

    def run(self) -> Decoded:
        self._halve(0, len(self.starts))
        self._join_faults()
        return self.found

    def _halve(self, first: int, last: int) -> None:
        """Read pieces ``first`` to ``last`` (exclusive); a piece that fails alone goes to ``faults``."""
        if self.found.tail is not None or self._read(first, last):
            return
        if last - first == 1:
            self.faults.append(first)
            return
        middle = (first + last) // 2
        self._halve(first, middle)
        self._halve(middle, last)

    def _read(self, first: int, last: int) -> bool:
        piece = self.text[self.starts[first] : self.ends[last - 1]]
        try:
            self.found.events += self.decoder.decode(b"[%b]" % piece)
        except _FAULTS as fault:
            end = _array_end(piece, fault)
            if end is None:
                return False
            try:
                self.found.events += self.decoder.decode(b"[%b" % piece[:end])
            except _FAULTS:
                return False
            self.found.tail = self.text[self.starts[first] + end :]
        return True

    def _join_faults(self) -> None:
        """A boundary inside an argument splits a good event: neighbouring faults are tried together."""
        at = 0
        while at < len(self.faults):
            first, joined = self.faults[at], 0
            ahead = [] if self._is_whole(first) else self.faults[at + 1 : at + _JOINED_AT_MOST]
            for more, following in enumerate(ahead, 1):
                if following != first + more:
                    break
                if self._read(first, following + 1):
                    joined = more + 1
                    break
            if not joined:
                self._skip(first)
            at += joined or 1

    def _is_whole(self, index: int) -> bool:
        """Whether a piece begins and ends with its event: no neighbour can complete it, nothing is beside it.

        In a file whose every event is wrong, this is what keeps the time for each near that of a good one.
        """
        piece = self.text[self.starts[index] : self.ends[index]].strip()
        return (
            piece.startswith(b"{")
            and piece.count(b"{") == piece.count(b"}")
            and piece.count(b'"') % 2 == 0
            and piece.count(b'"ph"') <= 1
        )

    def _skip(self, index: int) -> None:
        """Give up a piece, but keep whole events in it: those around a cut one, or around a stray bracket."""
        piece = self.text[self.starts[index] : self.ends[index]]
        is_last = index == len(self.starts) - 1
        if not is_last and self._is_whole(index):
            self.found.skipped.append(piece)
            return
        end = 0
        text = piece.decode()
        for found in islice(_EVENT_START.finditer(text), _STARTS_TRIED if len(piece) < _WALKED_BYTES else 0):
            if found.start() < end:
                continue
            try:
                _, end = _JSON.raw_decode(text, found.start())
                event = self.decoder.decode(f"[{text[found.start() : end]}]")[0]
            except _FAULTS:
                continue
            if event.ph:
                self.found.events.append(event)
        self.found.skipped.append(piece[len(text[:end].encode()) :] if is_last else piece)
        self.found.ends_in_fault = is_last


def _mend(text: bytes) -> tuple[bytes, int]:
    """Make NaN, infinities, control characters, bad UTF-8 and a last comma readable; how many there were."""
    text, numbers = _NOT_A_NUMBER.subn(rb"\1null", text)
    text, commas = _LAST_COMMA.subn(rb"}]", text)
    controls = len(_CONTROL.findall(text))
    text = text.translate(_SPACES_FOR_CONTROLS)
    try:
        text.decode()
    except UnicodeDecodeError:
        readable = text.decode(errors="replace")
        return readable.encode(), numbers + commas + controls + readable.count("�")
    return text, numbers + commas + controls


def whole_number(value: Identifier) -> int | None:
    """An identifier as int, also one written as text; None where it is no number (``"Spans"``)."""
    if isinstance(value, str):
        return int(value) if _DIGITS.fullmatch(value) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value
