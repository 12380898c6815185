"""A run becomes a perf dump whose sums are right and whose trust is told in words."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import MS, make_run, stage, step, three_stages
from stepscope.analyse.run.reconcile import reconcile
from stepscope.model.run import (
    Anchor,
    Clock,
    MemoryCheckpoint,
    MemoryReading,
    OutsideRun,
    Pause,
    Run,
    Transfer,
)
from stepscope.model.vocabulary import ClockKind, CopyKind, Outside, Stage


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Stages of random names and lengths one after another, some denoising ones filled with steps."""
    at, stages, steps = 0, [], []
    for index in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(list(Stage)))
        start = at
        if name is Stage.DENOISING:
            for length in draw(st.lists(st.integers(1, 10**9), min_size=1, max_size=5)):
                steps.append(step(len(steps), at, at + length, stage_index=index))
                at += length
        else:
            at += draw(st.integers(0, 10**9))
        inferred = draw(st.integers(0, at - start))
        stages.append(stage(name, index, start, at, inferred_ns=inferred))
    return make_run(stages, steps, total_ns=at + draw(st.integers(0, 10**8)))


@given(runs())
def test_sums_by_name_lose_nothing_and_keep_the_order(run: Run) -> None:
    """`steps` has each name once, in order of first occurrence, and holds all of the stages' time."""
    dump = reconcile(run)

    names = [entry.name for entry in dump.steps]
    assert list(dict.fromkeys(item.span.name for item in run.stages)) == names
    total_ms = sum(item.span.duration_ns for item in run.stages) / 1e6
    assert total_ms == pytest.approx(sum(entry.duration_ms for entry in dump.steps))
    assert dump.total_duration_ms == pytest.approx(total_ms + dump.unaccounted_ms)


@given(runs())
def test_every_occurrence_and_every_step_is_kept(run: Run) -> None:
    """stages[] and denoise_steps_ms repeat the run one to one."""
    dump = reconcile(run)

    assert [item.stage_index for item in run.stages] == [item.stage_index for item in dump.stages]
    assert [item.span.duration_ns / 1e6 for item in run.steps] == [
        s.duration_ms for s in dump.denoise_steps_ms
    ]
    assert [item.index for item in run.steps] == [s.step for s in dump.denoise_steps_ms]
    assert dump.coverage is None or 0 <= dump.coverage <= 1


@given(runs())
def test_time_in_no_stage_is_a_reason_and_steps_that_fill_their_stage_are_none(run: Run) -> None:
    """More than 2 % of the total (and than 2 ms) that lies in no stage is said; these runs' steps agree."""
    dump = reconcile(run)
    limit_ms = max(0.02 * dump.total_duration_ms, 2)

    said = [reason for reason in dump.trust.reasons if "is in no stage" in reason]
    if abs(dump.unaccounted_ms - limit_ms) > 1e-4:  # at the limit itself float milliseconds may round away
        assert bool(said) is (dump.unaccounted_ms > limit_ms)
    assert not any("steps sum to" in reason for reason in dump.trust.reasons)


def test_steps_that_do_not_fill_their_stage_are_untrusted() -> None:
    """Steps 3 % short of their DenoisingStage are named with both numbers."""
    run = three_stages(step_ms=10, step_count=10)
    short = replace(run, steps=run.steps[:9])

    reasons = reconcile(short).trust.reasons

    assert reasons == ("the 9 steps sum to 90.0 ms, 90.0 % of the 100.0 ms of DenoisingStage (stage 1)",)


def test_stages_that_exceed_the_total_are_untrusted() -> None:
    """A total below the sum of the stages cannot be right."""
    run = three_stages(step_count=4)

    reasons = reconcile(replace(run, total_ns=40 * MS)).trust.reasons

    assert reasons == ("the stages sum to 50 ms, more than the total of 40 ms",)


def test_two_clocks_that_drift_apart_are_untrusted() -> None:
    """Device and host say different times between the same two moments."""
    anchors = (
        Anchor(unix_ns=0, host_ns=0, device="cuda:0", device_ns=0),
        Anchor(unix_ns=100 * MS, host_ns=100 * MS, device="cuda:0", device_ns=95 * MS),
    )
    reasons = reconcile(replace(three_stages(), anchors=anchors)).trust.reasons

    assert reasons == ("the clock of cuda:0 says 95.0 ms, the host's says 100.0 ms",)


def test_an_untrusted_clock_and_an_incomplete_run_are_reasons() -> None:
    """Both are said in words, with what is known of them."""
    run = replace(
        three_stages(),
        clock=Clock(kind=ClockKind.SYNCHRONISED_HOST, self_test="events ran backwards", trusted=False),
        incomplete_reason="interrupted in step 3",
    )

    assert reconcile(run).trust.reasons == (
        "the run is incomplete: interrupted in step 3",
        "the clock is not trusted: events ran backwards",
    )


def test_without_a_total_the_stages_stand_in_and_the_dump_says_so() -> None:
    """An interrupted run has no total: no zero is printed in its place."""
    dump = reconcile(replace(three_stages(step_count=4), total_ns=None))

    assert (dump.total_duration_ms, dump.unaccounted_ms, dump.coverage) == (50.0, None, None)
    assert "the total could not be measured" in dump.trust.reasons[0]


def test_pauses_transfers_memory_and_outside_are_their_own_rows() -> None:
    """None of them is in a stage; memory is in MiB; the ends leave pauses out."""
    run = replace(
        three_stages(step_count=4),
        pauses=(Pause(reason="start", host_start_ns=10 * MS, host_end_ns=13 * MS),),
        transfers=(
            Transfer(
                component="transformer",
                kind=CopyKind.HOST_TO_DEVICE,
                count=2,
                bytes=10,
                pinned=True,
                duration_ns=MS,
                exposed_ns=None,
                stage_index=1,
            ),
        ),
        memory=(
            MemoryCheckpoint(
                name="before_forward",
                reading=MemoryReading(
                    allocated_bytes=1024**2,
                    reserved_bytes=2 * 1024**2,
                    peak_allocated_bytes=1024**2 + 1024**2 // 3,
                    peak_reserved_bytes=0,
                ),
            ),
        ),
        outside=(OutsideRun(name=Outside.MODEL_LOADING, host_start_ns=0, host_end_ns=7 * MS),),
    )
    dump = reconcile(run)

    assert dump.profiler_pause_ms == 3.0
    assert dump.returned_ms == 47.0
    assert (dump.transfers[0].kind, dump.transfers[0].stage_index) == ("HtoD", 1)
    assert dump.memory_checkpoints["before_forward"].peak_allocated_mb == 1.33
    assert dump.memory_checkpoints_reason is None
    assert [(item.name, item.duration_ms) for item in dump.outside_stages] == [("ModelLoading", 7.0)]


def test_a_run_without_memory_says_why() -> None:
    """memory_checkpoints is null with a reason, never a zero."""
    dump = reconcile(replace(three_stages(), memory_reason="the CPU has no allocator statistics"))

    assert dump.memory_checkpoints is None
    assert dump.memory_checkpoints_reason == "the CPU has no allocator statistics"
