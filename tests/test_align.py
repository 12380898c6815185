"""Alignment of two recordings of the same work."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.trace.align import align
from stepscope.model.source_map import Match

FEW = st.lists(st.integers(0, 5), max_size=60)


def tokens(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


@given(FEW, FEW)
def test_partners_rise_and_checked_ones_are_equal(wanted: list[int], known: list[int]) -> None:
    """Whatever the sequences: strictly rising partners, in range, equal where they are called checked."""
    found = align(tokens(wanted), tokens(known))
    matched = found.partner[found.partner >= 0]

    assert (np.diff(matched) > 0).all()
    assert ((matched >= 0) & (matched < len(known))).all()
    assert ((found.match == Match.NONE) == (found.partner < 0)).all()
    for row in np.flatnonzero(found.match == Match.CHECKED):
        assert wanted[row] == known[found.partner[row]]


@given(FEW)
def test_equal_sequences_are_matched_one_to_one(calls: list[int]) -> None:
    """The usual case: the same step again."""
    found = align(tokens(calls), tokens(calls))

    assert found.partner.tolist() == list(range(len(calls)))
    assert found.checked == len(calls)


@given(st.integers(10, 80), st.data())
def test_calls_left_out_cost_only_themselves(length: int, data: st.DataObject) -> None:
    """Distinct calls of which some runs are missing (a cache skipped them): every call left finds itself."""
    known = list(range(length))
    first = data.draw(st.integers(1, length - 5))
    last = data.draw(st.integers(first, length - 4))
    wanted = known[:first] + known[last:]
    found = align(tokens(wanted), tokens(known))

    assert found.partner.tolist() == wanted


@given(st.lists(st.integers(4, 12), min_size=2, max_size=6), st.data())
def test_calls_put_in_cost_only_themselves(runs: list[int], data: st.DataObject) -> None:
    """New calls between runs of known ones (a scheduler that has warmed up) stay alone."""
    known = list(range(sum(runs)))
    wanted, truth, at = [], [], 0
    for number, run in enumerate(runs):
        wanted += [*known[at : at + run], 1000 + number]
        truth += [*known[at : at + run], -1]
        at += run
    found = align(tokens(wanted), tokens(known))

    assert found.partner.tolist() == truth


def test_as_many_unequal_calls_between_equal_ones_are_matched_by_place() -> None:
    """Another prompt length makes other GEMM kernels of the same calls."""
    found = align(tokens([1, 2, 30, 4, 5]), tokens([1, 2, 3, 4, 5]))

    assert found.partner.tolist() == [0, 1, 2, 3, 4]
    assert found.match.tolist() == [2, 2, 1, 2, 2]
    assert found.checked == 4


def test_a_long_sequence_with_many_differences_is_aligned_quickly() -> None:
    """50,000 calls of repeated blocks with a thousand differences: no quadratic search."""
    generator = np.random.default_rng(0)
    block = generator.integers(0, 40, 90)
    known = np.tile(block, 550).astype(np.uint64)
    keep = np.ones(len(known), bool)
    keep[generator.choice(len(known), 1000, replace=False)] = False
    found = align(known[keep], known)

    assert found.checked > 0.9 * keep.sum()
