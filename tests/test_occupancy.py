"""Occupancy: against NVIDIA's calculator and against what CUPTI-based traces recorded."""

import csv
import gzip
from pathlib import Path

import msgspec
import pytest

from kineto_files import HEADER, SMALL, compact, document, kernel, write
from stepscope.analyse.kernels.occupancy import (
    MultiprocessorLimits,
    launched_occupancy,
    limits_of,
    occupancy_of,
)
from stepscope.model.trace import Device
from stepscope.session.report import report_ranks

CALCULATED = Path(__file__).parent / "data" / "occupancy_calculator.tsv"
"""Blocks a multiprocessor by ``cudaOccMaxActiveBlocksPerMultiprocessor`` of CUDA 13.0, for nine compute
capabilities with 1 KiB reserved a block from Ampere on and shared memory up to the opt-in limit."""


def device(capability: str | None, name: str = "NVIDIA H200") -> Device:
    return Device(id=0, name=name, compute_capability=capability)


def hopper() -> MultiprocessorLimits:
    limits = limits_of(device("9.0"))
    assert limits is not None
    return limits


def test_blocks_equal_nvidias_calculator() -> None:
    """880 launches over nine compute capabilities, each the same number of blocks."""
    with CALCULATED.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    wrong = []
    for row in rows:
        limits = limits_of(device(row["capability"]))
        assert limits is not None
        occupancy = occupancy_of(
            threads=int(row["threads"]),
            registers=int(row["registers"]),
            shared_bytes=int(row["shared_bytes"]),
            limits=limits,
        )
        if occupancy is None or occupancy.blocks_per_multiprocessor != int(row["blocks"]):
            wrong.append((row, occupancy))

    assert len(rows) == 880
    assert wrong == []


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "theoretical", "limited_by"),
    [
        (128, 32, 0, 1.0, "warps"),
        (384, 168, 0, 12 / 64, "registers"),
        (256, 64, 100_000, 16 / 64, "shared_memory"),
        (32, 16, 0, 0.5, "blocks"),
        (1024, 65, 0, 0.0, "registers"),
    ],
)
def test_what_limits_a_kernel_is_named(
    threads: int, registers: int, shared_bytes: int, theoretical: float, limited_by: str
) -> None:
    """The tightest of the four limits, on Hopper."""
    occupancy = occupancy_of(threads=threads, registers=registers, shared_bytes=shared_bytes, limits=hopper())

    assert occupancy is not None
    assert (occupancy.theoretical, occupancy.limited_by) == (theoretical, limited_by)


@pytest.mark.parametrize(
    "unknown",
    [
        device(None),
        device("9.4", "AMD Instinct MI300X"),
        device("9.0", "AMD Instinct MI250X"),
        device("12.0", "Intel(R) Arc(TM) B580 Graphics"),
        device("99.0"),
        device("x"),
    ],
)
def test_devices_of_other_makes_have_no_limits(unknown: Device) -> None:
    """gfx90a reports compute capability 9.0 as Hopper does: its name tells them apart."""
    assert limits_of(unknown) is None


def test_what_the_trace_says_of_the_device_goes_first() -> None:
    """A slice of a GPU may have less than the table says."""
    limits = limits_of(
        Device(
            id=0,
            name="NVIDIA H200",
            compute_capability="9.0",
            threads_per_multiprocessor=1024,
            registers_per_multiprocessor=32_768,
            shared_bytes_per_multiprocessor=100_000,
        )
    )

    assert limits is not None
    assert (limits.warps, limits.registers, limits.shared_bytes) == (32, 32_768, 100_000)


@pytest.mark.parametrize("launch", [(0, 1, 1), (-1, 1, 1), (1, -1, 0), (1, 1, -1)])
def test_unknown_launch_values_give_no_figure(launch: tuple[int, int, int]) -> None:
    """-1 is the model's word for a value the recording does not have."""
    threads, registers, shared_bytes = launch

    assert (
        occupancy_of(threads=threads, registers=registers, shared_bytes=shared_bytes, limits=hopper()) is None
    )


class _Arguments(msgspec.Struct, frozen=True):
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    registers: int = msgspec.field(name="registers per thread", default=0)
    shared_bytes: int = msgspec.field(name="shared memory", default=0)
    recorded_percent: int = msgspec.field(name="est. achieved occupancy %", default=0)


class _Event(msgspec.Struct):
    cat: str = ""
    args: _Arguments | None = None


class _File(msgspec.Struct):
    traceEvents: list[_Event]


def launches(path: Path) -> set[_Arguments]:
    data = gzip.decompress(path.read_bytes())
    events = msgspec.json.decode(data, type=_File).traceEvents
    return {event.args for event in events if event.cat == "kernel" and event.args is not None}


@pytest.mark.parametrize("trace", ["qwen_image_4layer_compiled_blocks", "wan_4layer_unipc_stack"])
def test_recorded_occupancy_is_ours_except_where_kineto_gives_up(shared_traces: Path, trace: str) -> None:
    """Kineto writes 0 for kernels with more than 48 KiB of shared memory, the large GEMMs and attention.

    Every other distinct launch of the trace has the percentage we work out.
    """
    distinct = launches(shared_traces / f"{trace}.trace.json.gz")
    limits = hopper()
    large = 0
    for launch in distinct:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        occupancy = occupancy_of(
            threads=threads, registers=launch.registers, shared_bytes=launch.shared_bytes, limits=limits
        )
        assert occupancy is not None
        if launch.shared_bytes > 48 * 1024:
            assert launch.recorded_percent == 0
            assert occupancy.theoretical > 0
            large += 1
            continue
        grid_blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        ours = launched_occupancy(occupancy, grid_blocks=grid_blocks, multiprocessors=132)
        assert int(ours * 100 + 0.5) == launch.recorded_percent

    assert large > 5
    assert len(distinct) > 100


def test_the_report_computes_what_kineto_leaves_at_zero(tmp_path: Path) -> None:
    """Kineto writes 0 for kernels above 48 KiB of shared memory; the kernel table has the real figure."""
    shape = {"registers per thread": 168, "shared memory": 200_000, "grid": [264, 1, 1], "block": [384, 1, 1]}
    events = [SMALL[1], kernel(1, **shape, **{"est. achieved occupancy %": 0})]
    limits = {"regsPerMultiprocessor": 65_536, "sharedMemPerMultiprocessor": 233_472}
    header = {**HEADER, "deviceProperties": [HEADER["deviceProperties"][0] | limits]}
    (rank,) = report_ranks(write(tmp_path / "big.json", compact(document(events, header))))
    assert rank.kernels[0].occupancy == pytest.approx(12 / 64)


def test_an_unknown_devices_zero_is_no_figure(tmp_path: Path) -> None:
    """Where nothing can be computed, what was recorded is shown; a 0 is not."""
    header = {**HEADER, "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}]}
    for recorded, shown in ((26, 0.26), (0, None)):
        events = [SMALL[1], kernel(1, **{"est. achieved occupancy %": recorded})]
        (rank,) = report_ranks(write(tmp_path / "amd.json", compact(document(events, header))))
        assert rank.kernels[0].occupancy == pytest.approx(shown)
