"""A trace of an offloaded run: how much of each step went into moving weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.analyse.report import analyse_trace
from stepscope.model.vocabulary import TRANSFER_SPAN
from stepscope.render.report.rank_tables import rank_steps
from stepscope.session.report import report_files
from traces import TraceBuilder

RECORDED = Path(__file__).parent / "data" / "recorded" / "h200_flux_6layer_block_offload.trace.json.gz"


def offloaded(*, marked: bool) -> TraceBuilder:
    """Three steps of 600 us, each of which waits 200 us for a copy before its kernels."""
    made = TraceBuilder()
    for step in range(3):
        at = 600 * step
        made.annotate(f"denoising_step_{step}", at, 600)
        made.annotate("forward_transformer", at + 10, 580)
        if marked:
            made.annotate(TRANSFER_SPAN, at + 20, 200)
        made.copy("HtoD", at + 25, at + 30, 180, size=1 << 20, pinned=True, call_duration=5)
        for index in range(10):
            made.launch("gemm_kernel", at + 230 + 30 * index, at + 232 + 30 * index, 25)
    return made


def test_the_time_for_weights_stands_beside_each_step() -> None:
    """Of 600 us, 200 went into a transfer; the forward is one, not one on each side of it."""
    rank = analyse_trace(offloaded(marked=True).build()).rank

    assert [step.transfer_ms for step in rank.steps] == pytest.approx([0.2] * 3, abs=0.01)
    assert [step.forwards for step in rank.steps] == [1, 1, 1]
    assert "of it transfers" in [column.title for column in rank_steps(rank).without_empty_columns().columns]


def test_nothing_is_said_of_transfers_where_none_are_marked() -> None:
    """Copies alone do not say that weights are moved."""
    rank = analyse_trace(offloaded(marked=False).build()).rank

    assert [step.transfer_ms for step in rank.steps] == [None] * 3
    assert "of it transfers" not in [
        column.title for column in rank_steps(rank).without_empty_columns().columns
    ]


def test_what_a_gpu_recorded_agrees_with_its_own_dump() -> None:
    """FLUX.1-schnell cut to 6 + 6 blocks, block offload, on an H200: one step of 135 ms, 86 ms of it weights.

    The perf dump of the same run, where transfers are in no step, has 48.98 ms for it.
    """
    report = report_files([RECORDED]).report
    [step] = report.ranks[0].steps

    assert report.trust.ok, report.trust.reasons
    assert (step.index, step.forwards, step.kernel_count) == (1, 1, 720)
    assert step.transfer_ms is not None
    assert step.duration_ms - step.transfer_ms == pytest.approx(48.98, rel=0.02)
    assert report.ranks[0].findings[0].id == "copies.offload_exposed"
    assert report.ranks[0].attributed_share == 1
