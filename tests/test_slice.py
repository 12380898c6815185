"""A part of a trace as a trace of its own: same steps, same kernels, same links."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stepscope.analyse.trace.slice_window import Wanted
from stepscope.cli import main
from stepscope.model.step_range import StepRange
from stepscope.record.open import read_trace
from stepscope.session.report import report_ranks
from stepscope.session.viewing.slice import slice_trace

DATA = Path(__file__).parent / "data"
KINETO = DATA / "traces" / "qwen_image_full_5_steps_ops.trace.json.gz"
STACKS = DATA / "traces" / "qwen_image_4layer_all_stages_stack_memory.trace.json.gz"
STAGES = DATA / "traces" / "qwen_image_4layer.nsys.sqlite.gz"
TWO_STEPS = DATA / "slices" / "steps_2_to_3.trace.json.gz"
NSIGHT = DATA / "slices" / "steps_2_to_3.sqlite.gz"
"""Steps 2 and 3 of shared/traces/qwen_image_4layer.nsys.sqlite.gz, cut with stepscope slice."""


TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "TARGET_INFO_GPU")


def steps(path: Path) -> dict[int, tuple[int, float, int, bool]]:
    """Kernels, milliseconds, forwards of each step, and whether it was inferred."""
    (rank,) = report_ranks(path)
    return {
        one.index: (one.kernel_count, round(one.duration_ms, 3), one.forwards, one.inferred)
        for one in rank.steps
    }


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def middle(found: dict[int, Any]) -> StepRange:
    """One step in the middle of a trace, or its only one."""
    index = sorted(found)[len(found) // 2]
    return StepRange(first=index, end=index + 1)


def check_steps(trace: Path, output: Path) -> None:
    before = steps(trace)
    wanted = middle(before)
    outcome = slice_trace(trace, output, Wanted(steps=wanted))
    assert outcome.steps == (wanted.first,)
    assert steps(output) == {wanted.first: before[wanted.first]}
    assert output.stat().st_size > 0


@pytest.mark.parametrize("trace", [KINETO, TWO_STEPS, NSIGHT], ids=lambda path: path.name[:24])
def test_a_step_has_the_kernels_that_the_report_gives_it(trace: Path, tmp_path: Path) -> None:
    """The same number, time and forwards under the same index, inferred or not."""
    check_steps(trace, tmp_path / ("cut.sqlite" if trace is NSIGHT else "cut.trace.json.gz"))


@pytest.mark.parametrize(
    "name",
    [
        "qwen_image_4layer_all_stages_stack_memory.trace.json.gz",
        "qwen_image_4layer_compiled_blocks.trace.json.gz",
        "qwen_image_full_5_steps_cuda_only.trace.json.gz",
        "ulysses2-global-rank1.trace.json.gz",
        "wan_4layer_unipc_stack.trace.json.gz",
        "qwen_image_4layer.nsys.sqlite.gz",
    ],
)
def test_steps_of_whole_recordings(name: str, shared_traces: Path, tmp_path: Path) -> None:
    """Recorded on an H200: operators, stacks, kernels only, compiled, two ranks, Nsight Systems."""
    check_steps(shared_traces / name, tmp_path / ("cut.sqlite" if "nsys" in name else "cut.trace.json.gz"))


def test_nsight_becomes_a_trace_for_perfetto(tmp_path: Path) -> None:
    """Kernels, copies, calls and ranges are those of the export."""
    output = tmp_path / "part.trace.json.gz"
    check_steps(NSIGHT, output)
    slice_trace(NSIGHT, tmp_path / "part.sqlite", Wanted(steps=middle(steps(NSIGHT))))
    ours, theirs = read_trace(output), read_trace(tmp_path / "part.sqlite")
    for table in ("kernels", "copies", "launches", "annotations"):
        one, other = getattr(ours, table), getattr(theirs, table)
        assert one.start_ns.tolist() == other.start_ns.tolist()
        assert [ours.names[at] for at in one.name] == [theirs.names[at] for at in other.name]
    assert ours.kernels.registers.tolist() == theirs.kernels.registers.tolist()
    assert ours.devices[0].name == theirs.devices[0].name


def test_every_kernel_keeps_its_launch_and_its_arrow(tmp_path: Path) -> None:
    """Links by correlation are whole: no launch without its kernel, but for what the device was busy with."""
    output = tmp_path / "cut.trace.json.gz"
    slice_trace(KINETO, output, Wanted(steps=middle(steps(KINETO))))
    found = events(output)
    device = {one["args"]["correlation"] for one in found if one.get("cat") == "kernel"}
    host = {
        one["args"]["correlation"] for one in found if one.get("cat") in {"cuda_runtime", "cuda_driver"}
        and "Launch" in one["name"]
    }  # fmt: skip
    assert host <= device
    assert len(device - host) <= 17  # what was still running when the step began
    arrows = {one["id"] for one in found if one.get("ph") == "f"}
    assert host <= arrows


def test_the_header_is_kept_and_says_what_was_cut(tmp_path: Path) -> None:
    """Device properties, clock base and versions stay; the file, the window and the steps are named."""
    output = tmp_path / "cut.trace.json.gz"
    slice_trace(KINETO, output, Wanted(steps=middle(steps(KINETO))))
    before = json.loads(gzip.decompress(KINETO.read_bytes()))
    after = json.loads(gzip.decompress(output.read_bytes()))
    for key in set(before) - {"traceEvents", "stepscope"}:
        assert after[key] == before[key], key
    sliced = after["stepscope"]["sliced"]
    assert sliced["from"] == KINETO.name
    assert sliced["what"].startswith("steps ")
    assert len(after["stepscope"]["window"]) == 1


def test_a_slice_of_a_slice(tmp_path: Path) -> None:
    """Steps keep their numbers, however often a trace is cut."""
    before = steps(TWO_STEPS)
    first, *_, last = sorted(before)
    once, twice = tmp_path / "once.trace.json.gz", tmp_path / "twice.trace.json.gz"
    slice_trace(TWO_STEPS, once, Wanted(steps=StepRange(first=first, end=last + 1)))
    slice_trace(once, twice, Wanted(steps=StepRange(first=last, end=None)))
    assert steps(once) == before
    assert steps(twice) == {last: before[last]}


def test_a_stage_alone(tmp_path: Path) -> None:
    """The stage's time and kernels as in the report, and no other stage with kernels."""
    (rank,) = report_ranks(STAGES)
    stage = next(one for one in rank.stages if one.kernel_count and one.name != "DenoisingStage")
    output = tmp_path / "cut.sqlite"
    slice_trace(STAGES, output, Wanted(stage=stage.name))
    (cut,) = report_ranks(output)
    assert {one.name: one.kernel_count for one in cut.stages if one.kernel_count} == {
        stage.name: sum(one.kernel_count for one in rank.stages if one.name == stage.name)
    }


def test_a_span_of_time(tmp_path: Path) -> None:
    """Milliseconds as the report counts them, by the host's time."""
    output = tmp_path / "cut.trace.json"
    slice_trace(STACKS, output, Wanted(time_ms=(0, 5)))
    cut = json.loads(output.read_text())
    (window,) = cut["stepscope"]["window"]
    assert window[1] - window[0] == pytest.approx(5e6)
    starts = [float(one["ts"]) * 1e3 for one in cut["traceEvents"] if one.get("cat") == "cpu_op"]
    assert starts
    assert min(starts) >= window[0] - 1
    assert max(starts) < window[1]


def test_a_cut_export_holds_only_the_window(tmp_path: Path) -> None:
    """Rows outside are gone from every table with times; descriptions of the machine stay."""
    output = tmp_path / "cut.sqlite"
    slice_trace(NSIGHT, output, Wanted(steps=middle(steps(NSIGHT))))
    whole = tmp_path / "whole.sqlite"
    whole.write_bytes(gzip.decompress(NSIGHT.read_bytes()))
    counts = []
    for path in (whole, output):
        with sqlite3.connect(path) as connection:
            counts.append(
                [
                    connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
                    for table in (
                        "CUPTI_ACTIVITY_KIND_RUNTIME",
                        "CUPTI_ACTIVITY_KIND_KERNEL",
                        "TARGET_INFO_GPU",
                    )
                ]
            )
    assert counts[1][0] < 0.6 * counts[0][0]
    assert counts[1][1] < 0.6 * counts[0][1]
    assert counts[1][2] == counts[0][2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "90:99", "-o", "x.trace.json.gz"], "It has steps"),
        (["--stage", "ImageEncodingStage", "-o", "x.trace.json.gz"], "has no ImageEncodingStage"),
        (["--time", "9:3", "-o", "x.trace.json.gz"], "START:END"),
        (["--steps", "1:2", "-o", "x.sqlite"], "Name it .json.gz"),
        (["--steps", "1:2", "--stage", "DecodingStage", "-o", "x.json"], "not allowed with"),
        (["-o", "x.json"], "is required"),
    ],
)
def test_bad_calls_are_one_line_and_status_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What the trace has is said, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert main(["slice", str(KINETO), *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_trace_itself_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under its own name or another one for it."""
    trace = tmp_path / "t.trace.json.gz"
    trace.write_bytes(KINETO.read_bytes())
    assert main(["slice", str(trace), "--steps", "0:9", "-o", str(tmp_path / "." / "t.trace.json.gz")]) == 2
    assert trace.read_bytes() == KINETO.read_bytes()
    assert main(["slice", str(tmp_path), "--steps", "0:9", "-o", "x.json"]) == 2


@pytest.mark.parametrize(
    ("field", "value"), [("correlation", 2**70), ("ts", -1e30), ("tid", 2**63), ("pid", 2**64)]
)
def test_a_number_that_nothing_counts_to_costs_only_its_event(
    field: str, value: float, tmp_path: Path
) -> None:
    """A damaged byte makes one of any size: the step is cut as from the whole trace, less that event."""
    document = json.loads(gzip.decompress(KINETO.read_bytes()))
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    launches = [event for event in document["traceEvents"] if event.get("cat") == "cuda_runtime"]
    for event in (kernels[0], launches[0]):
        (event["args"] if field == "correlation" else event)[field] = value
    damaged, output = tmp_path / "damaged.trace.json", tmp_path / "part.trace.json.gz"
    damaged.write_text(json.dumps(document))
    assert main(["slice", str(damaged), "--steps", "1", "-o", str(output)]) == 0
    assert sum(event.get("cat") == "kernel" for event in events(output)) > 0
