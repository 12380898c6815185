"""Kernels of two traces: gone, new and changed ones, always summing to the difference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.comparison.compare_kernels import UNLISTED, compare_kernels
from stepscope.analyse.results import CategoryRow, EngagedView, KernelRow, RankReport, StepRow


def rank(kernels, *, steps=3, unlisted_ms=0.0):
    """A report of (name, category, count, ms) kernels; ``unlisted_ms`` of GEMM time is in no kernel row."""
    totals: dict[str, list[float]] = {}
    for _, category, count, ms in kernels:
        entry = totals.setdefault(category, [0, 0.0])
        entry[0] += count
        entry[1] += ms
    if unlisted_ms:
        entry = totals.setdefault("gemm", [0, 0.0])
        entry[0] += 1
        entry[1] += unlisted_ms
    return RankReport(
        rank=0,
        path="x",
        request_id=None,
        source="torch_profiler",
        event_count=1,
        gpu=None,
        stages=(),
        steps=tuple(STEP for _ in range(steps)),
        categories=tuple(
            CategoryRow(name=name, total_ms=ms, share=0.0, count=int(count))
            for name, (count, ms) in totals.items()
        ),
        transfers=(),
        kernels=tuple(kernel_row(*row) for row in kernels),
        engaged=EngagedView(attention=None, gemm_dtypes=(), compiled_kernel_share=0.0, graph_replays=0),
    )


STEP = StepRow(
    index=0,
    stage_index=0,
    duration_ms=1.0,
    gpu_busy_ms=1.0,
    kernel_count=1,
    forwards=1,
    outlier=None,
    inferred=False,
)


def kernel_row(name, category, count, ms):
    return KernelRow(
        name=name, category=category, count=count, total_ms=ms, share=0.0, mean_us=0.0, source=None
    )


def test_kernels_that_went_came_and_changed() -> None:
    """Fused kernels replace elementwise ones; each row says what happened to it."""
    base = rank(
        [("add", "elementwise", 100, 20.0), ("gemm_a", "gemm", 10, 50.0), ("norm", "normalisation", 5, 5.0)]
    )
    new = rank(
        [("fused", "elementwise", 20, 8.0), ("gemm_a", "gemm", 10, 50.5), ("norm", "normalisation", 9, 9.0)]
    )
    result = compare_kernels(base, new)
    states = {row.name: row.state for row in result.kernels}
    assert states == {"add": "disappeared", "fused": "appeared", "gemm_a": "same", "norm": "changed"}
    assert result.difference_ms == pytest.approx(-7.5)
    assert result.kernels[0].name == "add"
    assert {row.name: row.difference_ms for row in result.categories}["elementwise"] == pytest.approx(-12.0)


def test_traces_of_different_lengths_are_compared_per_step() -> None:
    """Five steps against three of the same work: no difference a step."""
    base = rank([("k", "gemm", 300, 30.0)], steps=3)
    new = rank([("k", "gemm", 500, 50.0)], steps=5)
    result = compare_kernels(base, new)
    assert result.per == "step"
    assert result.difference_ms == pytest.approx(0.0)
    assert result.kernels[0].state == "same"
    assert (result.kernels[0].base_count, result.kernels[0].new_count) == (100, 100)


def test_what_the_kernel_list_leaves_out_is_a_row() -> None:
    """A report may list the top kernels only; the rest of a category still counts."""
    result = compare_kernels(rank([("k", "gemm", 1, 5.0)], unlisted_ms=2.0), rank([("k", "gemm", 1, 5.0)]))
    assert {row.name for row in result.kernels} == {"k", UNLISTED}
    assert sum(row.difference_ms for row in result.kernels) == pytest.approx(result.difference_ms)


kernels = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.sampled_from(["gemm", "attention"]),
        st.integers(1, 50),
        st.floats(0.001, 100),
    ),
    max_size=8,
    unique_by=lambda row: row[:2],
)


@given(kernels, kernels, st.integers(0, 4), st.integers(0, 4), st.floats(0, 10))
def test_rows_always_sum_to_the_difference(left, right, left_steps, right_steps, unlisted) -> None:
    """Whatever the kernels, either table sums to the difference."""
    result = compare_kernels(
        rank(left, steps=left_steps, unlisted_ms=unlisted), rank(right, steps=right_steps)
    )
    for rows in (result.kernels, result.categories):
        assert sum(row.difference_ms for row in rows) == pytest.approx(result.difference_ms, abs=1e-6)
