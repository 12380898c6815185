"""The trace file: exactly the window, our spans on tracks of their own, readable as any Kineto trace."""

import gzip
import json
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import make_run, stage, step
from stepscope.model.errors import RunFailedError, UnreadableInputError
from stepscope.model.run import Anchor, Pause, Run, Span, Transfer
from stepscope.model.vocabulary import TRANSFER_SPAN, CopyKind
from stepscope.record.trace_writing import raw_export
from stepscope.record.trace_writing.trace_spans import HOST_TRACK, TraceSpan, lanes
from stepscope.record.trace_writing.trace_window import Intervals, TraceClock
from stepscope.record.trace_writing.trace_writer import TraceContent, window_note, write_trace

STEPS = 6


def load(path: str) -> dict:
    return json.loads(gzip.decompress(Path(path).read_bytes()))


def ours(trace: dict) -> list[dict]:
    return [e for e in trace["traceEvents"] if e.get("args", {}).get("stepscope")]


def anchor() -> Anchor:
    """Both clocks at one moment: the narrowest of several readings, as the CPU may be taken in between."""
    readings = [(time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()) for _ in range(20)]
    before, unix_ns, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return Anchor(unix_ns=unix_ns, host_ns=(before + after) // 2)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A real export of six 'steps' of two matrix products each, and the run that fits it."""
    torch = pytest.importorskip("torch")
    raw = tmp_path_factory.mktemp("raw") / "raw.json"
    matrix = torch.randn(16, 16)
    marks = []

    def loop() -> None:
        for _ in range(STEPS):
            marks.append(time.perf_counter_ns())
            torch.mm(matrix, matrix).relu()
        marks.append(time.perf_counter_ns())

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=True
    ) as profiler:
        before = anchor()
        torch.ones(4).sum()
        loop()
        torch.ones(4).sum()
        after = anchor()
    profiler.export_chrome_trace(str(raw))
    run = make_run(
        [stage("DenoisingStage", 0, marks[0], marks[-1])],
        [step(i, marks[i], marks[i + 1], stage_index=0, traced=True) for i in range(STEPS)],
        anchors=[before, after],
    )
    return raw, replace(run, ends=None)


def content(indices: range, **further: object) -> TraceContent:
    return TraceContent(**{"steps": tuple(indices), "asked": len(indices)} | further)


@pytest.mark.parametrize("indices", [range(1, 6), range(2, 3), range(6), range(1, 4)])
def test_the_trace_holds_exactly_the_steps_marked(
    recorded: tuple[Path, Run], tmp_path: Path, indices: range
) -> None:
    """One span for each step, its operators inside, and no operator of any other step."""
    raw, run = recorded
    window = write_trace(raw, run, content(indices), tmp_path)
    trace = load(window.path)

    assert window.steps == tuple(indices)
    assert Path(window.path).name == f"request-{len(indices)}_steps-global-rank0.trace.json.gz"
    spans = Counter(e["name"] for e in ours(trace))
    assert spans == Counter(
        ["DenoisingStage", *(f"denoising_step_{i}" for i in indices), *["forward_transformer"] * len(indices)]
    )
    operators = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]
    counts = Counter(e["name"] for e in operators)
    assert counts["aten::mm"] == counts["aten::relu"] == len(indices)
    assert not {"aten::ones", "aten::sum"} & {e["name"] for e in operators}
    for span_event in ours(trace):
        if span_event["name"].startswith("denoising_step_"):
            inside = [e["name"] for e in operators if encloses(span_event, e)]
            assert inside.count("aten::mm") == 1


def cut_in(run: Run, index: int, **further: object) -> Run:
    """The run with the middle third of a step taken out of the step and its stage."""
    whole = run.steps[index].span.segments[0]
    third = (whole.host_end_ns - whole.host_start_ns) // 3
    low, high = whole.host_start_ns + third, whole.host_end_ns - third

    def without(span: Span) -> Span:
        [part] = span.segments
        return replace(span, segments=(replace(part, host_end_ns=low), replace(part, host_start_ns=high)))

    step_of = run.steps[index]
    steps = [replace(step_of, span=without(step_of.span)) if one.index == index else one for one in run.steps]
    stages = [replace(one, span=without(one.span)) for one in run.stages]
    return replace(run, steps=tuple(steps), stages=tuple(stages), **further)


MOVED = Transfer(
    component="transformer",
    kind=CopyKind.HOST_TO_DEVICE,
    count=1,
    bytes=8,
    pinned=True,
    duration_ns=1,
    exposed_ns=1,
)


def test_a_step_is_one_range_over_the_transfers_in_it(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """Block offload cuts a step's time into dozens of segments; what was launched between them is there."""
    raw, run = recorded
    offloaded = cut_in(run, 2, transfers=(MOVED,))
    trace = load(write_trace(raw, offloaded, content(range(1, 4)), tmp_path).path)
    spans = {event["name"]: event for event in ours(trace)}

    assert Counter(event["name"] for event in ours(trace)) == {
        "DenoisingStage": 1, "denoising_step_1": 1, "denoising_step_2": 1, "denoising_step_3": 1,
        "forward_transformer": 3, TRANSFER_SPAN: 1,
    }  # fmt: skip
    assert encloses(spans["denoising_step_2"], spans[TRANSFER_SPAN])
    assert len(trace["stepscope"]["window"]) == 1
    operators = Counter(e["name"] for e in trace["traceEvents"] if e.get("cat") == "cpu_op")
    assert operators["aten::mm"] == operators["aten::relu"] == 3


def test_a_pause_is_drawn_in_no_step(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """What a profiler does in the middle of a step is left out of it, also in an offloaded run."""
    raw, run = recorded
    cut = cut_in(run, 2, transfers=(MOVED,))
    first, second = cut.steps[2].span.segments
    pause = Pause(reason="test", host_start_ns=first.host_end_ns, host_end_ns=second.host_start_ns)
    paused = replace(cut, pauses=(pause,))
    trace = load(write_trace(raw, paused, content(range(1, 4)), tmp_path).path)

    names = Counter(event["name"] for event in ours(trace))
    assert names["denoising_step_2"] == names["DenoisingStage"] == 2
    assert TRANSFER_SPAN not in names
    assert len(trace["stepscope"]["window"]) == 2


def encloses(outer: dict, inner: dict) -> bool:
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.001


def test_frames_are_clipped_to_the_window(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """A frame that began before the window is there, from the window's start to its end."""
    raw, run = recorded
    trace = load(write_trace(raw, run, content(range(2, 4)), tmp_path).path)
    low, high = trace["stepscope"]["window"][0]
    frames = [e for e in trace["traceEvents"] if e.get("cat") == "python_function"]
    loops = [e for e in frames if e["name"].endswith(": loop")]

    assert len(loops) == 1
    for frame in frames:
        assert low <= round(frame["ts"] * 1000)
        assert round(frame["ts"] * 1000) + round(frame["dur"] * 1000) <= high
    assert round(loops[0]["dur"] * 1000) == high - low


def test_the_header_says_what_the_file_is(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """The recorder's header is kept, ours beside it; process and thread names are kept and ours named."""
    raw, run = recorded
    window = write_trace(raw, run, content(range(1, 3), asked=5), tmp_path)
    trace = load(window.path)

    assert trace["baseTimeNanoseconds"] == json.loads(raw.read_text())["baseTimeNanoseconds"]
    assert trace["traceName"] == Path(window.path).name
    assert trace["stepscope"]["steps"] == [1, 2]
    assert trace["stepscope"]["request_id"] == "request"
    assert window.note == "5 steps were asked for, 2 follow step 0: the trace holds steps 1 to 2"
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    assert "stepscope: stages, steps, forwards" in names
    assert any(name.startswith("thread ") for name in names)
    assert {e["tid"] for e in ours(trace)} == {HOST_TRACK}


def test_all_stages_keep_the_whole_call(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """--profile-all-stages names the file full_stages and holds every step."""
    raw, run = recorded
    window = write_trace(raw, run, content(range(0), full_stages=True), tmp_path / "new" / "logs")
    assert Path(window.path).name == "request-full_stages-global-rank0.trace.json.gz"
    assert window.steps == tuple(range(STEPS))
    assert window.note == ""


def test_a_second_trace_of_the_same_name_overwrites_nothing(
    recorded: tuple[Path, Run], tmp_path: Path
) -> None:
    """The second gets a number."""
    raw, run = recorded
    paths = {write_trace(raw, run, content(range(1, 6)), tmp_path).path for _ in range(2)}
    assert len(paths) == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(Path(path).name for path in paths)


def test_an_event_that_is_not_json_costs_only_itself(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """A bare quote in a name (old torch.compile traces) is skipped and counted."""
    raw, run = recorded
    broken = tmp_path / "broken.json"
    text = raw.read_text()
    assert text.count('"name": "aten::mm"') == STEPS
    broken.write_text(text.replace('"name": "aten::mm"', '"name": "aten::"mm"', 1))
    trace = load(write_trace(broken, run, content(range(6)), tmp_path).path)

    assert trace["stepscope"]["malformed_events_skipped"] == 1
    assert Counter(e["name"] for e in trace["traceEvents"])["aten::mm"] == STEPS - 1


def test_nothing_recorded_is_an_error_and_leaves_no_file(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """A run that ended before its first traced step has no trace."""
    raw, run = recorded
    with pytest.raises(RunFailedError, match="before a step was recorded"):
        write_trace(raw, run, content(range(0), asked=5), tmp_path)
    assert not list(tmp_path.iterdir())


def test_marks_in_the_export_tie_the_clocks_together(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """A wall clock a second off does no harm where the export holds our anchors; they are not kept."""
    raw, run = recorded
    export = json.loads(raw.read_text())
    base = export["baseTimeNanoseconds"]
    wrong = [Anchor(unix_ns=a.unix_ns + 10**9, host_ns=a.host_ns) for a in run.anchors]
    for anchor in run.anchors:
        ts = (anchor.unix_ns - base) / 1000
        export["traceEvents"].append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": "stepscope_anchor",
                "pid": 1,
                "tid": 1,
                "ts": ts,
                "dur": 1,
            }
        )
    anchored = tmp_path / "anchored.json"
    anchored.write_text(json.dumps(export))
    marks = tuple((a.host_ns - 10, a.host_ns + 10) for a in run.anchors)
    window = write_trace(
        anchored, replace(run, anchors=tuple(wrong)), content(range(1, 6), marks=marks), tmp_path
    )
    names = Counter(e["name"] for e in load(window.path)["traceEvents"])

    assert names["aten::mm"] == 5
    assert names["stepscope_anchor"] == 0


def test_a_file_that_is_no_export_is_refused(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """No half-written trace of something else."""
    raw = tmp_path / "raw.json"
    raw.write_text("{}")
    with pytest.raises(UnreadableInputError, match="traceEvents"):
        write_trace(raw, recorded[1], content(range(1, 6)), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["raw.json"]


names = st.text(max_size=12) | st.sampled_from(['}, {"ph":', "]}", '"', "\\"])
event_lists = st.lists(
    st.builds(lambda name, at: {"ph": "X", "name": name, "ts": at}, names, st.integers(0, 9)), max_size=8
)


@given(event_lists, st.sampled_from([None, 0, 2]), st.integers(40, 200))
def test_an_export_is_split_into_its_events_in_any_layout(
    events: list[dict], indent: int | None, chunk: int
) -> None:
    """However it is laid out, wherever a chunk ends and whatever stands in names."""
    footer = {"traceName": "x", "distributedInfo": {"pg_config": [{"ranks": []}]}}
    document = {"schemaVersion": 1, "traceEvents": events} | footer
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_export, "CHUNK_BYTES", chunk)
        path = Path(folder) / "raw.json"
        path.write_text(json.dumps(document, indent=indent))
        parts = list(raw_export.split_export(path))

    assert [json.loads(raw) for part, raw in parts if part is raw_export.Part.EVENT] == events
    assert json.loads(parts[0][1]) == {"schemaVersion": 1}
    assert json.loads(parts[-1][1]) == footer


def test_an_export_that_was_cut_off_gives_what_is_there(recorded: tuple[Path, Run], tmp_path: Path) -> None:
    """As on a full disk: the note says so, the events before the cut are kept."""
    raw, run = recorded
    short = tmp_path / "short.json"
    text = raw.read_text()
    short.write_text(text[: text.rindex('"aten::mm"') + 40])
    window = write_trace(short, run, content(range(6)), tmp_path)

    assert "cut off" in window.note
    assert Counter(e["name"] for e in load(window.path)["traceEvents"])["aten::mm"] == STEPS - 1


@pytest.mark.parametrize(
    ("asked", "steps", "note"),
    [
        (5, (1, 2, 3, 4, 5), ""),
        (-1, tuple(range(12)), ""),
        (5, (0,), "the run has one step, so the trace holds step 0"),
        (-1, (0,), "the run has one step, so the trace holds step 0"),
        (5, (1,), "5 steps were asked for, 1 follows step 0: the trace holds step 1"),
        (50, (1, 2, 3), "50 steps were asked for, 3 follow step 0: the trace holds steps 1 to 3"),
    ],
)
def test_short_runs_are_said(asked: int, steps: tuple[int, ...], note: str) -> None:
    """Fewer steps than asked, or step 0, is never silent."""
    assert window_note(TraceContent(steps=steps, asked=asked), steps, len(steps)) == note


def test_a_recording_that_ended_in_the_first_step_is_no_run_of_one() -> None:
    """What was cut short says so."""
    note = window_note(TraceContent(steps=(0,), asked=5), (0,), 12)

    assert note == "recording ended in the first of 12 steps, so the trace holds step 0"


pairs = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=20)


@given(pairs, st.integers(0, 100), st.integers(0, 100))
def test_interval_arithmetic_agrees_with_counting(
    intervals: list[tuple[int, int]], start: int, end: int
) -> None:
    """Union, membership and clipping against sets of integers."""
    union = Intervals.union(intervals)
    points = {at for low, high in intervals for at in range(low, high)}

    assert {at for at in range(101) if union.holds(at)} == points
    clipped = union.clip(start, end)
    assert {at for low, high in clipped for at in range(low, high)} == points & set(range(start, end))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=25))
def test_on_one_track_spans_nest_or_are_apart(intervals: list[tuple[int, int]]) -> None:
    """Perfetto drops slices that merely overlap; none is lost on the way to the tracks."""
    spans = [
        TraceSpan(name=str(i), start_ns=start, end_ns=start + length, thread=None)
        for i, (start, length) in enumerate(intervals)
    ]
    tracks = lanes(spans)

    assert sorted(span.name for track in tracks for span in track) == sorted(span.name for span in spans)
    for track in tracks:
        for i, a in enumerate(track):
            for b in track[i + 1 :]:
                apart = b.start_ns >= a.end_ns
                nested = a.start_ns <= b.start_ns and b.end_ns <= a.end_ns
                assert apart or nested


def test_the_trace_clock_interpolates_between_anchors() -> None:
    """The wall clock may be slewed during a run: the offset grows with it."""
    clock = TraceClock.from_points([(1_000, 5_100), (0, 4_000)])
    times_ns = [clock.at(host_ns) for host_ns in (-10, 0, 500, 1_000, 2_000)]
    assert times_ns == [3_990, 4_000, 4_550, 5_100, 6_100]
