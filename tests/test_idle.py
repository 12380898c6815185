"""Each idle gap charged to what the host was doing."""

from stepscope.analyse.trace.analysis import analyse
from stepscope.analyse.trace.idle import Cause, Gaps
from traces import TraceBuilder


def gaps_of(made: TraceBuilder) -> Gaps:
    return analyse(made.build()).gaps


def test_a_gap_that_ends_with_a_late_launch_is_the_hosts() -> None:
    """The next kernel was launched after the device had run dry."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 10)
    made.launch("b", 90, 100, 10)
    gaps = gaps_of(made)

    assert gaps.host_late_ns.tolist() == [80_000]


def test_a_gap_before_work_that_was_queued_in_time_is_the_devices_own() -> None:
    """The end of one kernel and the start of the next."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 100)
    made.launch("b", 20, 112, 10)
    gaps = gaps_of(made)

    assert gaps.start_end_ns.tolist() == [2_000]
    assert gaps.total_ns(Cause.HOST_LATE) == 0


def test_a_wait_that_let_the_queue_run_dry_is_charged_with_the_idle_time_after_it() -> None:
    """Blocked for 95 us; without that the host would have launched b in time."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 100)
    made.call("cudaStreamSynchronize", 15, 97)
    made.launch("b", 150, 160, 10)
    gaps = gaps_of(made)

    assert gaps.synchronising_ns.tolist() == [40_000]
    assert gaps.host_late_ns.tolist() == [10_000]
    assert gaps.blocking.tolist() == [0]


def test_a_wait_that_hardly_waited_explains_hardly_any_idle_time() -> None:
    """The host was late anyway: removing the call wins 3 us, not the gap (diffusers #9475)."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 100)
    made.call("cudaStreamSynchronize", 108, 3)
    made.launch("b", 500, 510, 10)
    gaps = gaps_of(made)

    assert gaps.total_ns(Cause.SYNCHRONISING) == 3_000
    assert gaps.total_ns(Cause.HOST_LATE) == 397_000


def test_a_wait_on_another_thread_is_not_the_launching_threads() -> None:
    """Only what the thread that launches next did can have made it late."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 100)
    made.call("cudaStreamSynchronize", 15, 97, thread=2)
    made.launch("b", 150, 160, 10)

    assert gaps_of(made).total_ns(Cause.SYNCHRONISING) == 0


def test_a_slow_copy_of_pageable_memory_waits_like_a_synchronisation() -> None:
    """cudaMemcpyAsync from pageable memory returns when the stream has got to it."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 100)
    made.copy("DtoH", 15, 110, 5, pinned=False, call_duration=101)
    made.launch("b", 150, 160, 10)
    gaps = gaps_of(made)

    assert gaps.total_ns(Cause.SYNCHRONISING) == 35_000


def test_allocation_is_a_cause_of_its_own() -> None:
    """cudaMalloc synchronises the device and costs a millisecond."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 10)
    made.call("cudaMalloc", 30, 50)
    made.launch("b", 90, 100, 10)
    gaps = gaps_of(made)

    assert gaps.allocation_ns.tolist() == [50_000]
    assert gaps.host_late_ns.tolist() == [30_000]


def test_a_gap_before_work_of_unknown_origin_is_unknown() -> None:
    """Lost host events are not turned into a cause."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 10)
    made.kernel("b", 100, 10)

    assert gaps_of(made).total_ns(Cause.UNKNOWN) == 80_000


def test_work_launched_before_the_recording_was_queued() -> None:
    """Its gaps are the device's own."""
    made = TraceBuilder()
    made.kernel("a", 10, 10)
    made.kernel("b", 22, 10)
    made.launch("c", 15, 40, 10)
    gaps = gaps_of(made)

    assert gaps.total_ns(Cause.UNKNOWN) == 0
    assert gaps.start_end_ns[0] == 2_000


def test_a_second_devices_lead_in_and_tail_are_start_and_end() -> None:
    """Idle time is measured on every device over the span of all of them."""
    made = TraceBuilder()
    made.launch("a", 0, 10, 100)
    made.launch("b", 1, 50, 10, device=1)
    found = analyse(made.build())

    # The launch itself was on its way for a few microseconds of it.
    assert found.gaps.total_ns(Cause.START_END) >= 85_000
