"""Whatever the events, the layout and the place of a cut, the reader gives what is there and nothing else."""

import gzip
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kineto_files import LAYOUTS, document
from stepscope.model.errors import UnreadableInputError
from stepscope.model.trace import Trace
from stepscope.record.open import read_trace

TABLES = {
    "kernel": "kernels",
    "cpu_op": "operators",
    "cuda_runtime": "launches",
    "user_annotation": "annotations",
}
names = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['}, {"ph": "X"', '"traceEvents": [', "]}", "\\"]
)
nanoseconds = st.integers(0, 2**43 * 1000 - 1000)
extra = st.dictionaries(
    st.sampled_from(["name", "ph", "bytes?", "pg", "queued"]),
    st.recursive(
        st.none() | st.integers(-9, 9) | names, lambda inner: st.lists(inner, max_size=2), max_leaves=4
    ),
    max_size=2,
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    category = draw(st.sampled_from([*TABLES, "ac2g", "overhead", "gpu_user_annotation"]))
    return {
        "ph": "X", "cat": category, "name": draw(names), "pid": draw(st.integers(0, 9)),
        "tid": draw(st.integers(0, 9)),
        "ts": draw(nanoseconds) / 1000, "dur": draw(st.integers(0, 10**9)) / 1000,
        "args": {"correlation": draw(st.integers(0, 2**40)), **draw(extra)},
    }  # fmt: skip


def read(content: bytes) -> Trace | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(content)
        try:
            return read_trace(path)
        except UnreadableInputError:
            return None


def rows_of(trace: Trace, table: str) -> list[tuple[str, int, int]]:
    found = getattr(trace, table)
    columns = zip(found.name.tolist(), found.start_ns.tolist(), found.duration_ns.tolist(), strict=True)
    return sorted((trace.names[name], start, length) for name, start, length in columns)


def rows_in(content: list[dict[str, Any]], category: str) -> list[tuple[str, int, int]]:
    mine = (event for event in content if event["cat"] == category)
    return sorted((e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in mine)


@settings(max_examples=120, deadline=None)
@given(st.lists(events(), min_size=1, max_size=12), st.sampled_from(sorted(LAYOUTS)), st.booleans())
def test_every_event_arrives_once_in_every_layout(
    content: list[dict[str, Any]], layout: str, after: bool
) -> None:
    """Names of any text, nested arguments and odd keys change nothing: each row has its exact times."""
    trace = read(LAYOUTS[layout](document(content, after=after)).encode())

    assert trace is not None
    assert trace.event_count == len(content)
    assert {w.kind for w in trace.warnings} <= {"overlapping_slices"}
    for category, table in TABLES.items():
        assert rows_of(trace, table) == rows_in(content, category)


@settings(max_examples=120, deadline=None)
@given(st.lists(events(), min_size=1, max_size=8), st.sampled_from(sorted(LAYOUTS)), st.data())
def test_a_file_cut_anywhere_gives_the_events_before_the_cut(
    content: list[dict[str, Any]], layout: str, data: st.DataObject
) -> None:
    """Never an event that is not there, never a lost one but the last, and never a traceback."""
    whole = LAYOUTS[layout](document(content)).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    trace = read(whole[:cut])

    complete = 0 if trace is None else trace.event_count
    assert complete <= len(content)
    if trace is None:
        return
    for category, table in TABLES.items():
        assert rows_of(trace, table) == rows_in(content[:complete], category)
    if complete < len(content):
        assert "truncated" in {w.kind for w in trace.warnings}


@settings(max_examples=60, deadline=None)
@given(st.lists(events(), min_size=1, max_size=8), st.data())
def test_a_gzip_cut_anywhere_is_no_traceback(content: list[dict[str, Any]], data: st.DataObject) -> None:
    """The inflated part is a cut file like any other."""
    packed = gzip.compress(LAYOUTS["pretty"](document(content)).encode())
    trace = read(packed[: data.draw(st.integers(0, len(packed) - 1))])

    assert trace is None or trace.event_count <= len(content)


@settings(max_examples=60, deadline=None)
@given(st.lists(events(), min_size=2, max_size=8), st.data())
def test_one_changed_byte_costs_few_events(content: list[dict[str, Any]], data: st.DataObject) -> None:
    """A byte replaced anywhere among the events is no traceback and leaves most events in place."""
    whole = bytearray(LAYOUTS["pretty"](document(content)).encode())
    first = whole.index(b'"traceEvents"') + 20
    whole[data.draw(st.integers(first, len(whole) - 10))] = data.draw(st.integers(0, 255))

    trace = read(bytes(whole))
    assert trace is None or trace.event_count >= len(content) - 3
