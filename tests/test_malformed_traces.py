"""Bad input: a clear line each, no traceback, and everything that could be read."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from kineto_files import HEADER, LAYOUTS, SMALL, compact, document, indented, kernel, operator, pretty, write
from stepscope.model.errors import UnreadableInputError
from stepscope.model.trace import Trace
from stepscope.record.open import read_trace

WHOLE = compact(document(SMALL))
PRETTY = pretty(document(SMALL))
LONG = compact(document([kernel(i, ts=float(i), dur=0.5) for i in range(9000)]))
SQLITE_HEAD = b"SQLite format 3\0"


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE moz_places (id INTEGER)")


UNREADABLE: dict[str, tuple[str, bytes, str]] = {
    "empty": ("t.json", b"", "an empty file"),
    "only white space": ("t.json", b" \n\t \n", "an empty file"),
    "gzip of nothing": ("t.json.gz", gzip.compress(b""), "an empty file"),
    "zstd of nothing": ("t.zst", zstandard.compress(b""), "an empty file"),
    "named gz, is text": ("t.json.gz", b"hello world", "no format"),
    "gzip of text": ("t.json.gz", gzip.compress(b"hello world"), "no format"),
    "a picture": ("t.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "no format"),
    "zeros": ("t.json", bytes(10_000), "no format"),
    "gzip cut in its header": ("t.json.gz", gzip.compress(LONG.encode())[:6], "an empty file"),
    "gzip damaged at its start": (
        "t.json.gz", gzip.compress(LONG.encode())[:10] + b"\xff" * 200, "damaged before its first event"
    ),
    "JSON of something else": ("t.json", b'{"name": "package", "version": "1.0"}', "JSON of something else"),
    "gzip of other JSON": ("t.json.gz", gzip.compress(b'{"a": [1, 2]}'), "JSON of something else"),
    "a JSON list": ("t.json", b"[1, 2, 3]", "no perf dump and no run record either"),
    "an empty JSON list": ("t.json", b"[]", "JSON of something else"),
    "a JSON number in brackets of any depth": ("t.json", b"[" * 100_000, "JSON of something else"),
    "JSON with a wrong traceEvents": ("t.json", b'{"traceEvents": null}', "has no traceEvents"),
    "no event": ("t.json", compact(document([])).encode(), "holds no trace event"),
    "no event, indented": ("t.json", indented(document([])).encode(), "holds no trace event"),
    "cut before its events": (
        "t.json", PRETTY[: PRETTY.index('"traceEvents"')].encode(), "has no traceEvents"
    ),
    "cut after the opening bracket": (
        "t.json", PRETTY[: PRETTY.index("[\n") + 1].encode(), "holds no trace event"
    ),
    "events that are no objects": ("t.json", b'{"traceEvents": [1, "two", [3]]}', "holds no trace event"),
    "a perf dump": ("p.json", b'{"total_duration_ms": 5, "denoise_steps_ms": []}', "a perf dump"),
    "SQLite head alone": ("t.sqlite", SQLITE_HEAD, "SQLite"),
    "SQLite head and noise": ("t.sqlite", SQLITE_HEAD + b"\x42" * 5000, "SQLite"),
    "a report without nsys": ("t.nsys-rep", b"\x00\x01report" * 50, "nsys is not on PATH"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_gives_one_clear_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file, says what it is and what to do; its exit status is 2."""
    monkeypatch.setenv("PATH", str(tmp_path))
    name, content, expected = UNREADABLE[case]
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(UnreadableInputError) as caught:
        read_trace(path)
    assert expected in caught.value.message
    assert str(path) in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    assert caught.value.exit_status == 2


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """Its tables are named, so that a person sees which database it is."""
    other_database(tmp_path / "places.sqlite")

    with pytest.raises(UnreadableInputError, match=r"another program .*moz_places"):
        read_trace(tmp_path / "places.sqlite")


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    """No file, and a directory where one trace is wanted."""
    with pytest.raises(UnreadableInputError, match="does not exist"):
        read_trace(tmp_path / "nothing.json")
    with pytest.raises(UnreadableInputError, match="is a directory"):
        read_trace(tmp_path)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason is passed on."""
    path = write(tmp_path / "t.json", WHOLE)

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UnreadableInputError, match="Permission denied"):
        read_trace(path)


def bad_event(text: str) -> str:
    """A trace in which the first of two kernels is replaced by ``text``."""
    return WHOLE.replace(compact(SMALL[2]), text, 1)


K = compact(SMALL[2])
PARTLY_READABLE: dict[str, tuple[str, int, set[str]]] = {
    # what is in the file, how many of its two kernels are read, which warnings there are
    "unescaped quotes in a name": (bad_event(K.replace("gemm", 'a "b" c')), 1, {"malformed_event"}),
    "an unescaped quote before a comma": (bad_event(K.replace("gemm", 'a", b')), 1, {"malformed_event"}),
    "a raw newline in a name": (bad_event(K.replace("gemm", "a\nb")), 2, set()),
    "a raw control character in a name": (bad_event(K.replace("gemm", "a\x01b")), 2, {"mended"}),
    "a NUL in a name": (bad_event(K.replace("gemm", "a\0b")), 2, {"mended"}),
    "a bad escape": (bad_event(K.replace("gemm", "C:\\xfiles")), 1, {"malformed_event"}),
    "a lone surrogate": (bad_event(K.replace("gemm", "\\ud800")), 1, {"malformed_event"}),
    "NaN in an argument": (bad_event(K.replace("2.1", "NaN")), 2, {"mended"}),
    "-Infinity in an argument": (bad_event(K.replace("2.1", "-Infinity")), 2, {"mended"}),
    "nan and inf as in C": (bad_event(K.replace("2.1", "nan").replace("16.8", "-inf")), 2, {"mended"}),
    "NaN as duration": (bad_event(K.replace('"dur":30.0', '"dur":NaN')), 1, {"mended", "malformed_event"}),
    "no double holds it": (bad_event(K.replace('"ts":1020.0', '"ts":1e999')), 1, {"malformed_event"}),
    "a time past int64": (bad_event(K.replace('"ts":1020.0', '"ts":1e17')), 1, {"time_out_of_range"}),
    "a negative duration": (bad_event(K.replace('"dur":30.0', '"dur":-30.0')), 2, {"negative_duration"}),
    "arguments that are a list": (bad_event(K[: K.index('"args"')] + '"args":[1]}'), 1, {"malformed_event"}),
    "arguments that are null": (bad_event(K[: K.index('"args"')] + '"args":null}'), 2, set()),
    "a grid of two": (bad_event(K.replace("[139,2,1]", "[139,2]")), 1, {"malformed_event"}),
    "a grid past int32": (bad_event(K.replace("[139,2,1]", "[5000000000,2,1]")), 2, set()),
    "a correlation past int64": (
        bad_event(K.replace('"correlation":1', '"correlation":99999999999999999999')), 2, set()
    ),
    "a stream in quotes": (bad_event(K.replace('"stream":7', '"stream":"7"')), 2, set()),
    "a key twice in an event": (
        bad_event(K.replace('"dur":30.0', '"dur":1.0,"dur":30.0')), 2, {"duplicate_key"}
    ),
    "an event that is a number": (bad_event("17"), 1, {"malformed_event"}),
    "an empty event": (bad_event("{}"), 1, set()),
    "an event that is cut in the middle": (bad_event(K[:90]), 1, {"malformed_event"}),
    "a brace too many": (bad_event(K + "}"), 2, {"malformed_event"}),
    "a comma twice": (WHOLE.replace(K + ",", K + ",,", 1), 2, {"malformed_event"}),
    "a comma after the last event": (WHOLE.replace("]}", ",]}").replace("},]}", "},]}"), 2, {"mended"}),
    "nested objects that look like events": (
        bad_event(K.replace('"queued":0', '"queued":0,"x":[{"name":1},{"name":2},{"ph":3}]')), 2, set()
    ),
    "brackets deeper than any parser goes": (
        bad_event(K.replace('"queued":0', '"queued":' + "[" * 5000 + "]" * 5000)), 1, {"malformed_event"}
    ),
    "a stray bracket between events": (WHOLE.replace(K + ",", K + "],", 1), 2, {"malformed_event"}),
    "a byte order mark": ("\ufeff" + WHOLE, 2, set()),
    "metadata cut off": (compact(document(SMALL, after=True))[:-40], 2, {"malformed_header"}),
    "metadata with two commas": (
        WHOLE.replace('{"schemaVersion":1', '{"with_stack":1,,"schemaVersion":1'), 2, {"malformed_header"}
    ),
    "a metadata key twice": ('{"schemaVersion":1,' + WHOLE[1:], 2, {"duplicate_key"}),
    "events twice": (WHOLE[:-1] + ',"traceEvents":[]}', 2, {"second_events"}),
    "no closing bracket": (WHOLE[:-2], 2, {"truncated"}),
    "cut inside the last event": (WHOLE[:-30], 1, {"truncated"}),
}  # fmt: skip


@pytest.mark.parametrize("case", PARTLY_READABLE)
@pytest.mark.filterwarnings("error")
def test_one_bad_event_costs_no_other(case: str, tmp_path: Path) -> None:
    """Only what is malformed is skipped, it is counted, and the reason is said."""
    text, kernels, kinds = PARTLY_READABLE[case]

    trace = read_trace(write(tmp_path / "t.json", text))
    assert len(trace.kernels.name) == kernels
    assert {w.kind for w in trace.warnings} == kinds
    assert len(trace.operators.name) == 1
    assert len(trace.launches.name) == 2
    assert trace.rank == 3 or "metadata" in case


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    """A name in another encoding keeps its event."""
    trace = read_trace(write(tmp_path / "t.json", WHOLE.encode().replace(b"gemm", b"g\xe9mm")))

    assert "g�mm" in trace.names
    assert [w.kind for w in trace.warnings] == ["mended"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_malformed_events_are_counted_wherever_they_lie(layout: str, tmp_path: Path) -> None:
    """Hundreds of bad names in a file of many stretches: each is skipped alone, and the count is right."""
    events = [kernel(i, ts=float(i), dur=0.5, name="BAD" if i % 50 == 7 else "good") for i in range(9000)]
    text = LAYOUTS[layout](document(events)).replace('"BAD"', '"b"a"d"')

    trace = read_trace(write(tmp_path / "t.json.gz", text))
    assert len(trace.kernels.name) == 9000 - 180
    assert [(w.kind, w.count) for w in trace.warnings] == [("malformed_event", 180)]
    assert trace.rank == 3


def test_a_file_of_bad_events_only_says_so(tmp_path: Path) -> None:
    """Nothing readable is an error, not an empty report."""
    text = compact(document([operator(name="BAD")] * 3)).replace('"BAD"', '"b"a"d"')

    with pytest.raises(UnreadableInputError, match="no trace event"):
        read_trace(write(tmp_path / "t.json", text))


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.99])
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_cut_archives_are_read_as_far_as_they_go(
    tmp_path: Path, kept: float, pack: Callable[[bytes], bytes]
) -> None:
    """A partial copy gives the events before the cut, and a warning."""
    whole = pack(json.dumps(document([kernel(i, ts=i * 1.337, dur=0.5) for i in range(9000)])).encode())
    path = tmp_path / "t.json.packed"
    path.write_bytes(whole[: int(len(whole) * kept)])

    trace = read_trace(path)
    assert 0 < len(trace.kernels.name) < 9000
    assert trace.kernels.correlation.tolist() == list(range(len(trace.kernels.name)))
    assert {"truncated"} <= {w.kind for w in trace.warnings} <= {"truncated", "damaged_compression"}


def test_a_flipped_bit_inside_gzip_keeps_what_precedes_it(tmp_path: Path) -> None:
    """Damage in the middle is not the end of what was before it."""
    data = bytearray(gzip.compress(LONG.encode()))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "t.json.gz").write_bytes(data)

    kinds = {w.kind for w in read_trace(tmp_path / "t.json.gz").warnings}
    assert kinds & {"damaged_compression", "malformed_event", "truncated"}


def test_gzip_members_and_padding_are_one_stream(tmp_path: Path) -> None:
    """Concatenated members are one file; zero padding is allowed; other trailing bytes are said."""
    half = len(WHOLE) // 2
    parts = gzip.compress(WHOLE[:half].encode()) + gzip.compress(WHOLE[half:].encode())
    for trailing, kinds in ((b"", []), (bytes(512), []), (b"garbage!", ["damaged_compression"])):
        path = tmp_path / "t.json.gz"
        path.write_bytes(parts + trailing)
        trace = read_trace(path)
        assert (len(trace.kernels.name), [w.kind for w in trace.warnings]) == (2, kinds)


def test_overlapping_slices_on_one_stream_are_counted(tmp_path: Path) -> None:
    """Only slices of the same device and stream overlap."""
    events = [kernel(1, ts=0, dur=10), kernel(2, ts=5, dur=10), kernel(3, ts=5, dur=10, stream=8),
              kernel(4, ts=5, dur=10, device=1), kernel(5, ts=15, dur=1)]  # fmt: skip

    trace: Trace = read_trace(write(tmp_path / "t.json", compact(document(events, HEADER))))
    assert [(w.kind, w.count) for w in trace.warnings] == [("overlapping_slices", 1)]
