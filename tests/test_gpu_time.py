"""Time of the GPUs: unions, exposed parts, windows on the devices' clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.trace.analysis import analyse
from stepscope.analyse.trace.gpu_time import WindowTime, window_times
from stepscope.analyse.trace.kernel_table import category_rows
from stepscope.analyse.trace.stage_view import busy_points, gpu_summary
from stepscope.model.vocabulary import BoundBy
from traces import TraceBuilder

WORK = st.lists(
    st.tuples(
        st.sampled_from(("gemm", "ncclDevKernel_AllGather", "HtoD", "fill")),
        st.integers(0, 200),
        st.integers(1, 50),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=25,
)


def made_of(work: list[tuple[str, int, int, int]]) -> TraceBuilder:
    made = TraceBuilder()
    for stream, (name, start, duration, device) in enumerate(work):
        if name in ("HtoD", "fill"):
            made.copy(
                name, at=max(start - 5, 0), start=start, duration=duration, stream=stream, device=device
            )
        else:
            made.launch(name, max(start - 5, 0), start, duration, stream=stream, device=device)
    return made


@given(WORK)
def test_every_moment_of_the_span_is_exactly_one_of_four(work: list[tuple[str, int, int, int]]) -> None:
    """Compute, exposed communication, exposed copies and idle add up to the span of all devices."""
    found = analyse(made_of(work).build())
    gpu = gpu_summary(found)

    assert gpu is not None
    whole = gpu.span_ms * gpu.device_count
    parts = gpu.compute_ms + gpu.exposed_communication_ms + gpu.exposed_copy_ms + gpu.idle_ms
    assert parts == pytest.approx(whole)
    assert sum(cause.total_ms for cause in gpu.idle_causes) == pytest.approx(gpu.idle_ms, abs=1e-9)
    assert gpu.busy_ms <= whole + 1e-9


@given(WORK)
def test_busy_time_is_that_of_a_count_of_every_microsecond(work: list[tuple[str, int, int, int]]) -> None:
    """The union against the obvious way."""
    found = analyse(made_of(work).build())
    busy = {(device, at) for _, start, length, device in work for at in range(start, start + length)}

    assert found.busy_ns == 1000 * len(busy)


def test_communication_beside_computation_is_not_exposed() -> None:
    """Only the part with nothing else running is."""
    made = TraceBuilder()
    made.launch("gemm", 0, 10, 50)
    made.launch("ncclDevKernel_AllGather", 1, 40, 50, stream=9)
    gpu = gpu_summary(analyse(made.build()))

    assert gpu is not None
    assert gpu.communication_ms == pytest.approx(0.050)
    assert gpu.exposed_communication_ms == pytest.approx(0.030)


@pytest.mark.parametrize(
    ("parts", "bound_by"),
    [
        ((60, 0, 0, 40), BoundBy.GPU),
        ((40, 0, 0, 60), BoundBy.HOST),
        ((30, 45, 0, 25), BoundBy.COMMUNICATION),
        ((30, 0, 45, 25), BoundBy.COPY),
        ((50, 0, 0, 50), BoundBy.GPU),
        ((0, 0, 0, 0), BoundBy.UNKNOWN),
    ],
)
def test_a_window_is_bound_by_its_largest_part(parts: tuple[int, int, int, int], bound_by: BoundBy) -> None:
    """The rule behind bound_by; no device or no time is unknown."""
    compute, communication, copy, idle = parts
    window = WindowTime(
        length_ns=sum(parts),
        compute_ns=compute,
        exposed_communication_ns=communication,
        exposed_copy_ns=copy,
        idle_ns=idle,
    )

    assert window.bound_by is bound_by


def test_a_stage_ends_when_its_work_is_done_on_the_device() -> None:
    """The host is ahead: it leaves the first stage at 30, the GPU at 110; the next begins there."""
    made = TraceBuilder()
    made.annotate("TextEncodingStage", 0, 30)
    made.annotate("DecodingStage", 30, 30)
    made.launch("a", 5, 10, 100)
    made.launch("b", 35, 110, 40)
    first, second = analyse(made.build()).stage_windows

    assert (first.start_ns, first.end_ns) == (0, 110_000)
    assert (second.start_ns, second.end_ns) == (110_000, 150_000)


def test_a_prefetch_on_another_stream_does_not_lengthen_the_stage_that_launched_it() -> None:
    """Only the busiest stream's queue counts, as for a device event recorded in it."""
    made = TraceBuilder()
    made.annotate("TextEncodingStage", 0, 30)
    made.annotate("DecodingStage", 30, 30)
    made.launch("a", 5, 10, 40)
    made.copy("HtoD", 6, 12, 500, stream=20)
    made.launch("b", 35, 50, 40)
    first, _ = analyse(made.build()).stage_windows

    assert first.end_ns == 50_000


def test_overlap_on_a_stream_is_clipped_for_sums_and_counted_but_not_for_the_union() -> None:
    """ROCm durations run over into the next kernel; a sum would count that time twice."""
    made = TraceBuilder()
    made.launch("gemm", 0, 10, 40)
    made.launch("elementwise_kernel", 1, 30, 40)
    found = analyse(made.build())

    assert found.clipped_count == 1
    assert found.busy_ns == 60_000
    assert sum(row.total_ms for row in category_rows(found)) == pytest.approx(0.060)


def test_the_busy_curve_averages_to_the_busy_ratio() -> None:
    """Slices of equal length over the span."""
    found = analyse(made_of([("gemm", 0, 50, 0), ("gemm", 90, 10, 0)]).build())
    points = busy_points(found)

    assert sum(point.busy_ratio for point in points) / len(points) == pytest.approx(0.6, abs=0.01)


def test_a_window_outside_all_work_is_idle() -> None:
    """No division by what is not there."""
    found = analyse(made_of([("gemm", 0, 50, 0)]).build())
    (window,) = window_times(found.devices, [(1_000_000, 2_000_000)])

    assert window.idle_ns == window.length_ns == 1_000_000
