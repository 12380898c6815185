"""A trace of an offloaded run: how much of each step went into moving weights."""

from __future__ import annotations

import pytest

from stepscope.analyse.report import analyse_trace
from stepscope.model.vocabulary import TRANSFER_SPAN
from stepscope.render.report.rank_tables import rank_steps
from traces import TraceBuilder


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
