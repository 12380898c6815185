"""What the Nsight Systems reader makes of exports of different versions and qualities."""

import gzip
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from nsight_files import Row, Strings, call, export, global_pid, global_tid, kernel, span
from stepscope.model.errors import UnreadableInputError
from stepscope.model.trace import COPY_KINDS, SYNC_KINDS, Trace
from stepscope.record.open import read_trace

RECORDED = Path(__file__).parent / "data" / "traces" / "qwen_image_4layer.nsys.sqlite.gz"
KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.fixture
def strings() -> Strings:
    return Strings()


def read(tmp_path: Path, strings: Strings, **tables: list[Row]) -> Trace:
    return read_trace(export(tmp_path / "t.sqlite", strings, tables))


def test_a_recorded_export_is_read_whole(tmp_path: Path) -> None:
    """Counts and times equal plain SQL; launches of all kernels are known; packed or not is the same."""
    plain = tmp_path / "t.sqlite"
    plain.write_bytes(gzip.decompress(RECORDED.read_bytes()))
    trace = read_trace(RECORDED)

    database = sqlite3.connect(plain)
    starts = [row[0] for row in database.execute(f"SELECT start FROM {KERNELS} ORDER BY start")]
    assert trace.kernels.start_ns.tolist() == starts == read_trace(plain).kernels.start_ns.tolist()
    assert np.isin(trace.kernels.correlation, trace.launches.correlation).all()
    assert {"denoising_step_0", "cudaLaunchKernel", "cuLaunchKernelEx"} <= set(trace.names)
    assert (trace.devices[0].name, trace.devices[0].multiprocessors, trace.processes) == (
        "NVIDIA H200",
        132,
        (464,),
    )
    assert trace.base_unix_ns == 1796031044439059422
    assert trace.path == str(RECORDED)


def test_no_environment_row_is_copied() -> None:
    """The capture's environment, where secrets are, is nowhere in the trace."""
    trace = read_trace(RECORDED)

    assert "hunter2" not in json.dumps([trace.metadata, trace.names, [w.text for w in trace.warnings]])
    assert "SECRET_TOKEN" not in repr(trace)


def test_a_kernel_keeps_all_that_the_export_says(tmp_path: Path, strings: Strings) -> None:
    """Demangled name, grid, block, registers, all shared memory, graph node, device, stream."""
    trace = read(
        tmp_path, strings, **{KERNELS: [kernel(strings, 5, graphNodeId=77)], CALLS: [call(strings, 1)]}
    )

    k = trace.kernels
    assert [trace.names[i] for i in k.name] == ["gemm<float>(int)"]
    found = (
        k.start_ns,
        k.duration_ns,
        k.device,
        k.stream,
        k.correlation,
        k.registers,
        k.shared_bytes,
        k.graph_node,
    )
    assert [column.tolist() for column in found] == [[5], [100], [0], [7], [1], [32], [64], [77]]
    assert (k.grid.tolist(), k.block.tolist()) == ([[139, 2, 1]], [[256, 1, 1]])


def test_an_old_export_without_newer_columns(tmp_path: Path, strings: Strings) -> None:
    """What a schema lacks is unknown: no graph node, no shared memory, no demangled name."""
    row = kernel(strings, 5)
    for column in (
        "demangledName",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "registersPerThread",
        "gridZ",
    ):
        del row[column]

    trace = read(tmp_path, strings, **{KERNELS: [row], CALLS: [call(strings, 1)]})
    k = trace.kernels
    assert trace.names[k.name[0]] == "gemm"
    assert (k.registers[0], k.shared_bytes[0], k.graph_node[0], k.grid[0].tolist()) == (
        -1,
        -1,
        0,
        [139, 2, -1],
    )


def test_rows_in_any_order_are_sorted(tmp_path: Path, strings: Strings) -> None:
    """Since 2025.6 the order of rows is not guaranteed."""
    rows = [kernel(strings, start, correlation=start) for start in (900, 100, 500)]

    assert read(tmp_path, strings, **{KERNELS: rows}).kernels.correlation.tolist() == [100, 500, 900]


def test_equal_correlations_of_two_processes_stay_apart(tmp_path: Path, strings: Strings) -> None:
    """Correlation ids are unique only within a process: kernels and launches carry the same process index."""
    rows = [kernel(strings, 10, correlation=5, pid=100), kernel(strings, 20, correlation=5, pid=200)]
    calls = [call(strings, 2, correlation=5, pid=200), call(strings, 1, correlation=5, pid=100)]

    trace = read(tmp_path, strings, **{KERNELS: rows, CALLS: calls})
    assert [trace.processes[i] for i in trace.kernels.process] == [100, 200]
    assert [trace.processes[i] for i in trace.launches.process] == [100, 200]


def test_visible_devices_are_mapped_to_the_real_ones(tmp_path: Path, strings: Strings) -> None:
    """Two processes that each see their GPU as device 0 do not share one device."""
    rows = [kernel(strings, 10, pid=100), kernel(strings, 20, pid=200)]
    devices = [{"gpuId": 4, "cudaId": 0, "pid": 100}, {"gpuId": 6, "cudaId": 0, "pid": 200}]

    trace = read(tmp_path, strings, **{KERNELS: rows, "TARGET_INFO_CUDA_DEVICE": devices})
    assert trace.kernels.device.tolist() == [4, 6]


def test_ranges_of_all_kinds(tmp_path: Path, strings: Strings) -> None:
    """Push and pop, start and end, plain and registered strings; marks and domains are no ranges."""
    rows = [
        span(1, 9, text="plain"),
        span(2, 8, textId=strings["registered"]),
        span(3, 7, text="process wide", eventType=60),
        span(4, None, text="a mark", eventType=34),
        span(0, None, text="stepscope", eventType=75, domainId=5),
        span(5, 6, textId=strings["denoising_step_0"], domainId=5),
    ]

    trace = read(tmp_path, strings, NVTX_EVENTS=rows)
    assert [trace.names[i] for i in trace.annotations.name] == [
        "plain",
        "registered",
        "process wide",
        "denoising_step_0",
    ]
    assert trace.annotations.ours.tolist() == [False, False, False, True]
    assert trace.annotations.duration_ns.tolist() == [8, 6, 4, 1]
    assert set(trace.annotations.thread.tolist()) == {464}


def test_a_range_that_was_never_closed_lasts_to_the_end(tmp_path: Path, strings: Strings) -> None:
    """An interrupted process leaves ranges open; they are kept, and said."""
    trace = read(
        tmp_path, strings, NVTX_EVENTS=[span(50, None, text="open")], **{KERNELS: [kernel(strings, 900)]}
    )

    assert trace.annotations.duration_ns.tolist() == [950]
    assert ("unclosed_range", 1) in [(w.kind, w.count) for w in trace.warnings]


def test_operator_ranges_become_operators(tmp_path: Path, strings: Strings) -> None:
    """What emit_nvtx writes for an operator is one, without its sequence number."""
    rows = [
        span(1, 9, text="aten::mm, seq = 12, op_id = 3"),
        span(2, 8, text="aten::empty"),
        span(3, 4, text="a::b c"),
    ]

    trace = read(tmp_path, strings, NVTX_EVENTS=rows)
    assert [trace.names[i] for i in trace.operators.name] == ["aten::mm", "aten::empty"]
    assert [trace.names[i] for i in trace.annotations.name] == ["a::b c"]


def test_graph_mode_is_detected_and_said(tmp_path: Path, strings: Strings) -> None:
    """A replay traced as a whole counts as busy time, and the flag that shows its kernels is named."""
    graph = {"start": 10, "end": 500, "deviceId": 0, "streamId": 7, "correlationId": 3,
             "globalPid": global_pid(), "graphId": 2}  # fmt: skip
    trace = read(
        tmp_path,
        strings,
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[graph],
        **{CALLS: [call(strings, 1, correlation=3)]},
    )

    assert ([trace.names[i] for i in trace.kernels.name], trace.kernels.duration_ns.tolist()) == (
        ["CUDA graph 2"],
        [490],
    )
    warning = next(w for w in trace.warnings if w.kind == "graph_mode")
    assert "--cuda-graph-trace=node" in warning.text


def test_missing_kernels_are_explained(tmp_path: Path, strings: Strings) -> None:
    """Calls without kernels and no CUDA at all are two different things."""
    calls_only = read(tmp_path, strings, **{CALLS: [call(strings, 1)]})
    ranges_only = read(tmp_path, strings, NVTX_EVENTS=[span(1, 2, text="a")])

    assert "flushed" in next(w.text for w in calls_only.warnings if w.kind == "no_kernels")
    assert "not traced" in next(w.text for w in ranges_only.warnings if w.kind == "no_kernels")


def test_copies_and_fills_are_named_as_in_other_traces(tmp_path: Path, strings: Strings) -> None:
    """Directions, memory kinds and pinned are those of Kineto's spelling."""

    def copy(start: int, kind: int, source: int, destination: int) -> Row:
        return {"start": start, "end": start + 5, "deviceId": 0, "streamId": 7, "correlationId": start,
                "globalPid": global_pid(), "bytes": 64, "copyKind": kind, "srcKind": source,
                "dstKind": destination}  # fmt: skip

    fill = {"start": 9, "end": 10, "deviceId": 0, "streamId": 7, "correlationId": 9,
            "globalPid": global_pid(), "bytes": 4, "memKind": 2}  # fmt: skip
    trace = read(
        tmp_path, strings,
        CUPTI_ACTIVITY_KIND_MEMCPY=[
            copy(1, 1, 0, 2), copy(2, 2, 2, 1), copy(3, 8, 2, 2), copy(4, 10, 2, 2), copy(5, 99, 9, 9)
        ],
        CUPTI_ACTIVITY_KIND_MEMSET=[fill],
    )  # fmt: skip

    assert [trace.names[i] for i in trace.copies.name] == [
        "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)", "Memcpy PtoP (Device -> Device)", "Memcpy other", "Memset (Device)",
    ]  # fmt: skip
    kinds = [COPY_KINDS[k] if k >= 0 else None for k in trace.copies.kind]
    assert kinds == ["HtoD", "DtoH", "DtoD", "PtoP", "other", None]
    assert trace.copies.pinned.tolist() == [0, 1, -1, -1, -1, -1]


def test_call_names_lose_their_version_and_waits_are_found(tmp_path: Path, strings: Strings) -> None:
    """``cudaStreamSynchronize_v3020`` is the call that Kineto names; ``cuMemAlloc_v2`` stays."""
    names = (
        "cudaStreamSynchronize_v3020",
        "cudaLaunchKernel_ptsz_v7000",
        "cuMemAlloc_v2",
        "cuCtxSynchronize",
    )
    trace = read(tmp_path, strings, **{CALLS: [call(strings, i, name=name) for i, name in enumerate(names)]})

    assert [trace.names[i] for i in trace.launches.name] == [
        "cudaStreamSynchronize", "cudaLaunchKernel", "cuMemAlloc_v2", "cuCtxSynchronize",
    ]  # fmt: skip
    assert [SYNC_KINDS[k] for k in trace.syncs.kind] == ["stream", "device"]


def test_diagnostics_are_passed_on_without_secrets(tmp_path: Path, strings: Strings) -> None:
    """Complaints become warnings, an nvtx too new gets its remedy, environment texts are withheld."""
    nvtx = "NVTX binary payload extension is incompatible. Provided compatibility ID 260 != 259"
    texts = ["CUPTI buffers were lost", "Process was launched", "Failed with API_KEY=secret", nvtx]
    trace = read(
        tmp_path, strings, DIAGNOSTIC_EVENT=[{"severity": 2, "text": text} for text in texts],
        **{KERNELS: [kernel(strings, 1)]},
    )  # fmt: skip

    found = {w.kind: w for w in trace.warnings}
    assert found["profiler_diagnostic"].count == 1
    assert "buffers were lost" in found["profiler_diagnostic"].text
    assert "0.2.11" in found["nvtx_too_new"].text


def test_values_of_wrong_types_are_no_traceback(tmp_path: Path, strings: Strings) -> None:
    """SQLite columns hold anything: text, blobs, reals and NULL become numbers or unknown."""
    rows = [
        kernel(strings, 5, streamId="seven", gridX=b"\xff\x00", registersPerThread=1e300, correlationId=None)
    ]
    rows.append(kernel(strings, 900) | {"end": 100})
    trace = read(tmp_path, strings, **{KERNELS: rows, CALLS: [call(strings, 1) | {"nameId": 999_999}]})

    assert (trace.kernels.stream[0], trace.kernels.registers[0], trace.kernels.correlation[0]) == (0, -1, -1)
    assert (trace.kernels.duration_ns.tolist(), trace.names[trace.launches.name[0]]) == ([100, 0], "")
    assert "negative_duration" in {w.kind for w in trace.warnings}


def test_a_view_is_not_taken_for_a_table(tmp_path: Path, strings: Strings) -> None:
    """A database made to look like an export runs nothing: only real tables are read."""
    path = export(tmp_path / "t.sqlite", strings, {CALLS: [call(strings, 1)]})
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE VIEW {KERNELS} AS SELECT load_extension('x') AS start")
    database.close()

    assert len(read_trace(path).kernels.name) == 0


def test_an_export_with_nothing_in_it_is_refused(tmp_path: Path, strings: Strings) -> None:
    """A capture range that never opened leaves only descriptions."""
    with pytest.raises(UnreadableInputError, match="no CUDA call, kernel or NVTX range"):
        read(tmp_path, strings)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.8, 0.97])
def test_a_cut_export_is_read_as_far_as_it_goes(tmp_path: Path, kept: float) -> None:
    """A partial copy is either refused in one line or read with a warning."""
    data = gzip.decompress(RECORDED.read_bytes())
    path = tmp_path / "t.sqlite"
    path.write_bytes(data[: int(len(data) * kept)])

    try:
        kinds = {w.kind for w in read_trace(path).warnings}
    except UnreadableInputError as error:
        assert "damaged" in error.message
    else:
        assert "damaged_table" in kinds


def test_the_export_is_not_written_to(tmp_path: Path, strings: Strings) -> None:
    """Reading leaves no lock, journal or changed byte; a path with odd characters is opened as it is."""
    path = export(tmp_path / "a?b#c %41.sqlite", strings, {CALLS: [call(strings, 1)]})
    before = path.read_bytes()
    path.chmod(0o400)

    read_trace(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_threads_are_told_by_their_number(tmp_path: Path, strings: Strings) -> None:
    """The thread id is in the low 24 bits, the process above them."""
    row = span(1, 2, text="a", globalTid=global_tid(pid=0xABCDEF, tid=0x123456))
    trace = read(tmp_path, strings, NVTX_EVENTS=[row])

    assert (trace.annotations.thread.tolist(), trace.processes) == ([0x123456], (0xABCDEF,))
