"""Files made or named to break the reader: nothing waits, grows without bound or gets out raw."""

from __future__ import annotations

import gzip
import os
import sqlite3
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard

from kineto_files import LAYOUTS, SMALL, compact, document, kernel, write
from stepscope.cli import main
from stepscope.model.errors import UnreadableInputError
from stepscope.record.budget_reader import read_budgets
from stepscope.record.open import read_trace, recognise
from stepscope.record.perf_dump_reader import read_perf_dumps
from stepscope.session.report import report_files

WHOLE = compact(document(SMALL))
ESCAPE = "\x1b]0;title\x07\x1b[2J"


def bomb(path: Path, head: bytes, filler: bytes, mebibytes: int) -> Path:
    """A gzip file of a few hundred kilobytes that inflates to very much."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with path.open("wb") as file:
        file.write(packer.compress(head))
        for _ in range(mebibytes):
            file.write(packer.compress(filler * (1 << 20)))
        file.write(packer.flush())
    return path


@pytest.mark.parametrize("command", ["report", "compare", "gate"])
def test_a_pipe_is_refused_at_once(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Opening a pipe that nobody writes to would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    pipe = str(tmp_path / "pipe")
    words = {"report": [pipe], "compare": [pipe, pipe], "gate": ["--budget", pipe, pipe]}[command]
    assert main([command, *words]) == 2
    assert "is a pipe or a device" in capsys.readouterr().err


def test_devices_are_no_files() -> None:
    """/dev/zero never ends; /dev/null is no empty trace."""
    for device in ("/dev/zero", "/dev/null"):
        for read in (recognise, read_perf_dumps, read_budgets):
            with pytest.raises(UnreadableInputError, match="is a pipe or a device"):
                read(Path(device))


def test_names_that_the_system_refuses(tmp_path: Path) -> None:
    """A name that is too long, and a link to itself: the system's reason, no traceback."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UnreadableInputError, match=r"cannot read .*symbolic links"):
        recognise(tmp_path / "loop")
    with pytest.raises(UnreadableInputError, match="too long"):
        recognise(tmp_path / ("x" * 300))


def test_links_in_a_circle_are_not_followed(tmp_path: Path) -> None:
    """A folder that links to itself is read once."""
    write(tmp_path / "a.json", WHOLE)
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(report_files([tmp_path]).report.ranks) == 1


def test_what_cannot_be_read_in_a_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is reported, and the file that may not be read is named."""
    write(tmp_path / "a.json", WHOLE)
    write(tmp_path / "b.json", WHOLE)
    opened = Path.open

    def refuse(self: Path, *args: str, **options: str) -> object:
        if self.name == "b.json":
            raise PermissionError(13, "Permission denied")
        return opened(self, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)
    outcome = report_files([tmp_path])
    assert len(outcome.report.ranks) == 1
    assert len(outcome.problems) == 1
    assert "b.json: Permission denied" in outcome.problems[0]


@pytest.mark.parametrize(
    ("head", "filler"),
    [(b'{"traceEvents":[', b" "), (b'{"traceEvents":[{"ph":"X","name":"', b"a")],
    ids=["white space", "one string"],
)
def test_a_gzip_bomb_in_a_trace_stays_small(head: bytes, filler: bytes, tmp_path: Path) -> None:
    """Memory stays below what one stretch may take, however far the file inflates."""
    path = bomb(tmp_path / "t.json.gz", head, filler, 96)
    tracemalloc.start()
    with pytest.raises(UnreadableInputError):
        read_trace(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6


def test_a_gzip_bomb_in_a_perf_dump_is_refused(tmp_path: Path) -> None:
    """A dump of more than 128 MiB is none."""
    path = bomb(tmp_path / "perf.json.gz", b'{"total_duration_ms":1', b" ", 130)
    with pytest.raises(UnreadableInputError, match="holds more than 128 MiB"):
        read_perf_dumps(path)


def test_perf_dumps_are_read_packed(tmp_path: Path) -> None:
    """gzip and zstd, as traces are; a cut one is said to be cut."""
    dump = b'{"total_duration_ms": 5.0, "denoise_steps_ms": []}'
    (tmp_path / "a.json.zst").write_bytes(zstandard.compress(dump))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(dump))
    assert read_perf_dumps(tmp_path / "a.json.zst") == read_perf_dumps(tmp_path / "a.json.gz")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(dump)[:-9])
    with pytest.raises(UnreadableInputError, match="ends before its end mark"):
        read_perf_dumps(tmp_path / "cut.json.gz")


def test_a_cut_zstd_trace_is_said_to_be_cut(tmp_path: Path) -> None:
    """It is not called empty, and what can be inflated is read."""
    packed = zstandard.compress(compact(document(SMALL * 20_000)).encode())
    path = tmp_path / "cut.json.zst"
    path.write_bytes(packed[:150])
    with pytest.raises(UnreadableInputError, match="the zstd stream ends before its end mark"):
        read_trace(path)
    path.write_bytes(packed[: len(packed) - 20])
    kinds = {warning.kind for warning in read_trace(path).warnings}
    assert {"damaged_compression", "truncated"} <= kinds


def test_zstd_frames_follow_each_other(tmp_path: Path) -> None:
    """A file of several frames is whole."""
    text = compact(document(SMALL)).encode()
    path = tmp_path / "two.json.zst"
    path.write_bytes(zstandard.compress(text[:100]) + zstandard.compress(text[100:]))
    trace = read_trace(path)
    assert trace.event_count == len(SMALL)
    assert not trace.warnings


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("at", [0, 5000], ids=["first event", "late event"])
def test_a_key_that_occurs_twice_in_an_event_is_noted(layout: str, at: int, tmp_path: Path) -> None:
    """The last value counts, as in every JSON reader, and the report says so."""
    events = [kernel(index, ts=1000.0 + 40 * index, name=f"k{index}") for index in range(6000)]
    text = LAYOUTS[layout](document(events))
    key = f'"ts":{"" if layout == "compact" else " "}{1000.0 + 40 * at}'
    assert text.count(key + ",") == 1
    path = write(tmp_path / "t.json", text.replace(key, f'"ts": 5, {key}'))
    trace = read_trace(path)
    assert [(one.kind, one.count) for one in trace.warnings] == [("duplicate_key", 1)]
    assert int(trace.kernels.start_ns[0]) == 1_000_000


def test_arguments_that_hold_a_time_are_no_repetition(tmp_path: Path) -> None:
    """A key of the arguments may be called as one of the event."""
    one = kernel(1)
    one["args"]["ts"] = 7
    path = write(tmp_path / "t.json", compact(document([one])))
    assert not read_trace(path).warnings


def test_a_file_of_broken_events_says_so(tmp_path: Path) -> None:
    """Events were recorded, but none can be read: that is not an empty recording. The last counts as cut."""
    path = write(tmp_path / "t.json", compact(document(SMALL * 100)).replace('"ph":"X"', '"ph":X'))
    with pytest.raises(UnreadableInputError, match=r"no trace event that can be read: .*\(499 in all\)"):
        read_trace(path)


def test_nothing_from_a_file_reaches_the_terminal_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not from its name and not from its content, in errors, warnings and notes."""
    named = tmp_path / f"a{ESCAPE}\n.json"
    write(named, WHOLE.replace('"gemm"', f'"{ESCAPE.encode("unicode_escape").decode()}" x'))
    assert main(["report", str(named)]) == 2
    assert main(["report", str(named), "-o", str(tmp_path / f"{ESCAPE}.html")]) == 2
    assert main(["report", str(tmp_path / f"none{ESCAPE}")]) == 2
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\x07" not in shown.out + shown.err
    assert "\\x1b]0;title" in shown.err


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", ["1e308", "-1e300", "1" + "0" * 300, "1" + "0" * 5000, "NaN", "1e999"])
def test_numbers_that_nothing_reaches_are_no_numbers(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sums and medians of them would overflow; the verdict is untrusted, with a reason in words."""
    steps = ", ".join(f'{{"step": {index}, "duration_ms": {number}}}' for index in range(4))
    path = tmp_path / "perf.json"
    path.write_text(f'{{"total_duration_ms": {number}, "steps": [], "denoise_steps_ms": [{steps}]}}')
    assert main(["report", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("UNTRUSTED: the total is missing or zero")


def test_an_event_without_end_costs_only_what_it_hides(tmp_path: Path) -> None:
    """Beyond any event's length the reader looks for the next event and goes on from there."""
    endless = '{"ph":"X","name":"' + "a" * (40 << 20) + '"}'
    first, *others = (compact(document([one]))[len(compact(document([]))) - 2 : -2] for one in SMALL)
    text = compact(document([]))[:-2] + ",".join([first, endless, *others]) + "]}"
    trace = read_trace(write(tmp_path / "t.json.gz", text))
    assert trace.event_count == len(SMALL)
    assert "malformed_event" in {one.kind for one in trace.warnings}


def test_a_huge_text_in_a_database_is_cut(tmp_path: Path) -> None:
    """A name of 20 MB is not carried through every view."""
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    connection.execute("INSERT INTO StringIds VALUES (1, zeroblob(20000000)), (2, ?)", ("k" * 20_000_000,))
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, demangledName INT)")
    connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 5, 1), (6, 9, 2)")
    connection.commit()
    connection.close()
    assert max(map(len, read_trace(tmp_path / "x.sqlite").names)) == 100_000
