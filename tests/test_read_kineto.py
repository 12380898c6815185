"""What the Kineto reader makes of well-formed traces, against the standard library's own reading."""

import dataclasses
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from kineto_files import (
    HEADER,
    LAYOUTS,
    PID,
    SMALL,
    TID,
    annotation,
    compact,
    document,
    kernel,
    launch,
    memory,
    operator,
    pretty,
    write,
)  # fmt: skip
from stepscope.model.trace import COPY_KINDS, SYNC_KINDS, Trace
from stepscope.model.vocabulary import TraceSource
from stepscope.record.open import read_trace

DATA = Path(__file__).parent / "data" / "traces"
RECORDED = sorted(DATA.glob("*.trace.json.gz"), key=str)


def read(tmp_path: Path, events: list[dict[str, Any]], header: dict[str, Any] = HEADER) -> Trace:
    return read_trace(write(tmp_path / "t.json", compact(document(events, header))))


def same(left: Trace, right: Trace) -> bool:
    """Equal in everything but the path."""
    for field in dataclasses.fields(Trace):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if dataclasses.is_dataclass(a):
            for column in dataclasses.fields(a):
                np.testing.assert_array_equal(getattr(a, column.name), getattr(b, column.name), column.name)
        elif field.name != "path":
            assert a == b, field.name
    return True


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_recorded_traces_are_read_as_json_reads_them(path: Path) -> None:
    """Counts, times to the nanosecond and links of recorded traces equal a plain reading of the JSON."""
    trace = read_trace(path)

    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    assert trace.event_count == len(events)
    assert trace.kernels.start_ns.tolist() == [round(e["ts"] * 1000) for e in kernels]
    assert trace.kernels.duration_ns.tolist() == [round(e["dur"] * 1000) for e in kernels]
    assert [trace.names[i] for i in trace.kernels.name] == [e["name"] for e in kernels]
    assert trace.kernels.correlation.tolist() == [e["args"]["correlation"] for e in kernels]
    assert trace.kernels.grid.tolist() == [e["args"]["grid"] for e in kernels]
    for table, category in (
        ("operators", "cpu_op"),
        ("frames", "python_function"),
        ("annotations", "user_annotation"),
    ):
        assert len(getattr(trace, table).name) == sum(e.get("cat") == category for e in events)
    assert len(trace.counters.name) == 2 * sum(e["name"] == "[memory]" for e in events)
    assert np.isin(trace.kernels.correlation, trace.launches.correlation).all()
    assert set(trace.kernels.process.tolist()) == {0}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_layout_and_compression_do_not_matter(path: Path, tmp_path: Path) -> None:
    """Indented, compact, sorted keys, metadata after the events, plain and zstd give the very same trace."""
    trace = read_trace(path)
    content = json.loads(gzip.decompress(path.read_bytes()))
    events = content.pop("traceEvents")

    variants = {
        "indented.json": json.dumps({**content, "traceEvents": events}, indent=2),
        "compact.json": json.dumps({"traceEvents": events, **content}, separators=(",", ":")),
        "sorted.json.gz": json.dumps({**content, "traceEvents": events}, sort_keys=True),
    }
    for name, text in variants.items():
        assert same(read_trace(write(tmp_path / name, text)), trace)
    packed = tmp_path / "t.zst"
    packed.write_bytes(zstandard.compress(gzip.decompress(path.read_bytes())))
    assert same(read_trace(packed), trace)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_metadata_is_read_before_and_after_the_events(tmp_path: Path, layout: str, after: bool) -> None:
    """Rank, devices and clock base are found on either side of the events, in every layout."""
    trace = read_trace(write(tmp_path / "t.json", LAYOUTS[layout](document(SMALL, after=after))))

    assert (trace.rank, trace.world_size, trace.base_unix_ns) == (3, 8, HEADER["baseTimeNanoseconds"])
    assert [(d.name, d.multiprocessors, d.compute_capability) for d in trace.devices] == [
        ("NVIDIA H200", 132, "9.0")
    ]
    assert (len(trace.kernels.name), trace.warnings) == (2, ())


def test_a_kernel_keeps_all_that_the_recorder_says(tmp_path: Path) -> None:
    """Grid, block, registers, shared memory, occupancy, graph node, device, stream and its process."""
    trace = read(tmp_path, [launch(9), kernel(9, **{"graph node id": 42, "device": 2, "stream": 13})])

    k = trace.kernels
    found = (k.device, k.stream, k.correlation, k.graph_node, k.registers, k.shared_bytes)
    assert [column.tolist() for column in found] == [[2], [13], [9], [42], [32], [49152]]
    assert (k.grid.tolist(), k.block.tolist()) == ([[139, 2, 1]], [[256, 1, 1]])
    assert math.isclose(k.occupancy[0], 0.26, rel_tol=1e-6)
    assert [trace.processes[i] for i in k.process] == [PID]


def test_missing_arguments_are_unknown_not_zero(tmp_path: Path) -> None:
    """ROCm kernels have no grid or registers, and some events no args: -1 and NaN, device from the pid."""
    bare = {"ph": "X", "cat": "kernel", "name": "Cijk", "pid": 1, "tid": 5, "ts": 10.0, "dur": 2.0}

    k = read(tmp_path, [bare]).kernels
    assert (k.device.tolist(), k.stream.tolist(), k.correlation.tolist()) == ([1], [5], [-1])
    assert (k.grid.tolist(), k.registers.tolist(), k.shared_bytes.tolist()) == ([[-1, -1, -1]], [-1], [-1])
    assert np.isnan(k.occupancy).all()


@pytest.mark.parametrize(
    ("written", "start_ns"),
    [
        ("5173846345846.579", 5173846345846579),
        ("8796093022207.999", 8796093022207999),
        ("9000000000000.001", 9000000000000001),
        ("1796031044439059.422", 1796031044439059422),
        ("1796031044439059", 1796031044439059000),
        ("0.001", 1),
        ("-12.5", -12500),
        ("1.5e3", 1500000),
    ],
)
def test_microseconds_become_exact_nanoseconds(tmp_path: Path, written: str, start_ns: int) -> None:
    """Times keep every nanosecond, also the unix times of old recorders that no double holds."""
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": "TS", "dur": 0.001}
    text = compact(document([event], {})).replace('"TS"', written)

    operators = read_trace(write(tmp_path / "t.json", text)).operators
    assert (operators.start_ns.tolist(), operators.duration_ns.tolist()) == ([start_ns], [1])


def test_unix_times_without_a_base_are_tied_to_the_wall_clock(tmp_path: Path) -> None:
    """Recorders before 2024 wrote unix microseconds; small times without a base have no wall clock."""
    old = read(tmp_path, [operator(ts=1_700_000_000_000_000.0)], {})
    small = read(tmp_path, [operator(ts=5.0)], {})

    assert (old.base_unix_ns, small.base_unix_ns) == (0, None)


def test_text_identifiers_get_numbers_of_their_own(tmp_path: Path) -> None:
    """Text pids and tids are told apart, digits in quotes are numbers."""
    events = [
        operator() | {"pid": "python", "tid": tid, "ts": ts}
        for ts, tid in ((1, "main"), (2, "worker"), (3, "12"))
    ]

    trace = read(tmp_path, events)
    thread = trace.operators.thread.tolist()
    assert len(set(thread)) == 3
    assert thread[2] == 12
    assert all(number < -1 for number in (*thread[:2], *trace.processes))


def test_equal_input_shapes_share_one_entry(tmp_path: Path) -> None:
    """Shapes are compact JSON with dims, types and concrete inputs, interned."""
    shapes = {"Input Dims": [[1, 139], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "4"]}
    trace = read(tmp_path, [operator(ts=1, **shapes), operator(ts=2, **shapes), operator(ts=3)])

    assert trace.shapes == ('{"dims":[[1,139],[]],"types":["float","Scalar"],"concrete":["","4"]}',)
    assert (trace.operators.shapes.tolist(), trace.has_shapes) == ([0, 0, -1], True)


def test_copies_have_a_direction_and_pinned_memory_is_told(tmp_path: Path) -> None:
    """Direction and pinned come from the names of CUDA and ROCm recorders; a fill has no direction."""

    def copy(name: str, ts: float, category: str = "gpu_memcpy") -> dict[str, Any]:
        return kernel(1, ts=ts, name=name, bytes=64) | {"cat": category}

    names = [
        "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
        "CopyHostToDevice", "Memcpy PtoP", "Memcpy M2D(HOST -> DEVICE)", "odd",
    ]  # fmt: skip
    events = [copy(name, ts) for ts, name in enumerate(names)] + [copy("Memset (Device)", 99, "gpu_memset")]

    copies = read(tmp_path, events).copies
    kinds = [COPY_KINDS[k] if k >= 0 else None for k in copies.kind]
    assert kinds == ["HtoD", "DtoH", "DtoD", "HtoD", "PtoP", "HtoD", "other", None]
    assert copies.pinned.tolist() == [0, 1, -1, -1, -1, -1, -1, -1]
    assert set(copies.bytes.tolist()) == {64}


def test_waiting_calls_are_also_launches(tmp_path: Path) -> None:
    """Calls that wait are found by name in CUDA, HIP and XPU spelling and stay in the launch table."""
    names = ["cudaDeviceSynchronize", "hipStreamSynchronize", "cudaEventSynchronize",
             "cudaStreamWaitEvent", "cudaMemcpy", "cudaLaunchKernel", "cudaMemcpyAsync", "urQueueFinish",
             "cuCtxSynchronize"]  # fmt: skip
    trace = read(tmp_path, [launch(i, ts=float(i), name=name) for i, name in enumerate(names)])

    assert [SYNC_KINDS[kind] for kind in trace.syncs.kind] == [
        "device", "stream", "event", "stream_wait", "other", "stream", "device",
    ]  # fmt: skip
    assert len(trace.launches.name) == len(names)


def test_our_own_spans_are_marked_and_carry_their_launching_thread(tmp_path: Path) -> None:
    """A span written by stepscope lies on a track of its own; its thread is the one in its arguments."""
    ours = annotation("denoising_step_1", stepscope=True, step=1, tid=TID) | {"tid": 1_900_000_000}
    trace = read(tmp_path, [ours, annotation("mine", ts=901), *SMALL], HEADER | {"stepscope": {"schema": 1}})

    assert trace.annotations.ours.tolist() == [True, False]
    assert trace.annotations.thread.tolist() == [TID, TID]
    assert (trace.source, trace.metadata["stepscope"]) == (TraceSource.STEPSCOPE, {"schema": 1})


@pytest.mark.parametrize(
    ("names", "process", "source"),
    [
        (["ProfilerStep#1"], "sgl_diffusion::scheduler", TraceSource.SGLANG),
        (["STAGE DenoisingStage"], "python3", TraceSource.SGLANG),
        (["pipeline_forward"], "python3", TraceSource.VLLM_OMNI),
        (["diffusion_step"], "python3", TraceSource.VLLM_OMNI),
        (["ProfilerStep#1"], "python3", TraceSource.TORCH_PROFILER),
    ],
)
def test_the_recorder_is_told_from_names(
    tmp_path: Path, names: list[str], process: str, source: TraceSource
) -> None:
    """ProfilerStep alone is any torch.profiler script; SGLang and vLLM-Omni have names of their own."""
    label = {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 0, "args": {"name": process}}

    assert read(tmp_path, [label, *(annotation(name) for name in names)]).source is source


def test_allocator_samples_become_counters(tmp_path: Path) -> None:
    """Allocated and reserved bytes over time, per device; host memory is device -1."""
    trace = read(tmp_path, [memory(100, 200, 5.0), memory(50, 0, 4.0, device=-1)])

    rows = zip(
        trace.counters.at_ns, trace.counters.name, trace.counters.device, trace.counters.value, strict=True
    )
    assert sorted((int(at), trace.names[n], int(d), float(v)) for at, n, d, v in rows) == [
        (4000, "allocated_bytes", -1, 50.0), (4000, "reserved_bytes", -1, 0.0),
        (5000, "allocated_bytes", 0, 100.0), (5000, "reserved_bytes", 0, 200.0),
    ]  # fmt: skip


def test_rows_are_sorted_by_start_the_enclosing_first(tmp_path: Path) -> None:
    """A parent that starts with its child comes before it."""
    events = [
        operator("late", ts=9),
        operator("child", ts=3, dur=1),
        operator("parent", ts=3, dur=5),
        operator("a", ts=1),
    ]

    trace = read(tmp_path, events)
    assert [trace.names[i] for i in trace.operators.name] == ["a", "parent", "child", "late"]


def test_old_category_names_are_understood(tmp_path: Path) -> None:
    """torch before 1.12 wrote Operator, Runtime, Kernel; XPU and others have runtimes of their own."""
    events = [operator() | {"cat": "Operator"}, launch(1) | {"cat": "Runtime"}, kernel(1) | {"cat": "Kernel"},
              launch(2) | {"cat": "xpu_runtime"}, launch(3) | {"cat": "privateuse1_driver"}]  # fmt: skip

    trace = read(tmp_path, events)
    assert [len(t.name) for t in (trace.operators, trace.launches, trace.kernels)] == [1, 3, 1]


def test_rank_comes_from_the_name_where_the_file_does_not_say(tmp_path: Path) -> None:
    """A trace without distributedInfo takes its rank from ``global-rank2``."""
    path = write(tmp_path / "x-5_steps-global-rank2.trace.json.gz", pretty(document(SMALL, {})))

    assert read_trace(path).rank == 2


def test_only_known_metadata_is_kept(tmp_path: Path) -> None:
    """A user's own metadata, which may hold secrets, is not copied."""
    trace = read(tmp_path, SMALL, HEADER | {"environment": {"TOKEN": "x"}, "with_stack": 1})

    assert trace.metadata["with_stack"] == 1
    assert "TOKEN" not in json.dumps(trace.metadata)


def test_a_bare_array_of_events_is_a_trace(tmp_path: Path) -> None:
    """Chrome's array form has no metadata at all."""
    assert len(read_trace(write(tmp_path / "t.json", json.dumps(SMALL))).kernels.name) == 2


def test_traces_larger_than_a_block_are_cut_between_events(tmp_path: Path) -> None:
    """Thousands of events over many stretches arrive once each, in every layout."""
    events = [kernel(i, ts=float(i), dur=0.5, name=f'k{i % 7}, {{"ph": [') for i in range(6000)]
    for name, layout in LAYOUTS.items():
        trace = read_trace(write(tmp_path / f"{name}.json.gz", layout(document(events))))
        assert trace.kernels.correlation.tolist() == list(range(6000))
        assert trace.warnings == ()


def test_unix_times_are_exact_wherever_the_metadata_ends(tmp_path: Path) -> None:
    """A header of about one block may leave no event in it to look at; times are exact all the same."""
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": "TS", "dur": 1}
    for filler in range(524_200, 524_290, 5):
        text = compact(document([event], {"x": "y" * filler})).replace('"TS"', "1796031044439059.421")
        start_ns = read_trace(write(tmp_path / "t.json", text)).operators.start_ns
        assert start_ns.tolist() == [1796031044439059421]


def test_kernels_belong_to_the_process_that_launched_them(tmp_path: Path) -> None:
    """In a file merged from two processes, correlation tells whose a kernel is."""
    events = [launch(1), launch(2) | {"pid": 900}, kernel(2, ts=1), kernel(1, ts=2), kernel(99, ts=3)]

    trace = read(tmp_path, events)
    assert [trace.processes[i] for i in trace.kernels.process][:2] == [900, PID]
    assert set(trace.kernels.process.tolist()) <= {0, 1}
