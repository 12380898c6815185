"""The denoising loop found in a bare sequence of kernel names."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.trace.repetition import longest_repetition, repeated_parts

FORWARD = [1, 2] + [10, 11, 12, 13, 14, 15, 16, 17, 18, 19] * 12 + [3, 4]
SCHEDULER = [5, 6, 7]
STEP = FORWARD + FORWARD + SCHEDULER
BEFORE, AFTER = list(range(100, 140)), list(range(200, 260))


def sequence(*parts: list[int]) -> np.ndarray:
    return np.array([name for part in parts for name in part], np.int32)


@given(st.integers(2, 9))
def test_steps_are_found_not_blocks_nor_forwards(count: int) -> None:
    """Blocks repeat in a forward and forwards in a step; only the step's period reaches through the loop."""
    found = longest_repetition(sequence(BEFORE, STEP * count, AFTER))

    assert found is not None
    assert (found.start, found.period, found.count) == (len(BEFORE), len(STEP), count)


def test_a_kernel_that_differs_from_step_to_step_does_not_end_the_loop() -> None:
    """Vector widths change with alignment: one kernel of 10,881 did in every step of a real trace."""
    steps = [list(STEP) for _ in range(5)]
    for index, step in enumerate(steps):
        step[-1] = 1000 + index

    found = longest_repetition(sequence(BEFORE, *steps, AFTER))

    assert found is not None
    assert (found.period, found.count) == (len(STEP), 5)


def test_a_recording_that_begins_inside_a_step_gives_whole_steps_from_the_first_boundary() -> None:
    """What precedes the first whole step belongs to the step before."""
    found = longest_repetition(sequence(STEP[-50:], STEP * 3))

    assert found is not None
    assert (found.start, found.count) == (50, 3)


def test_a_sequence_without_repetition_gives_nothing() -> None:
    """No steps are made up."""
    assert longest_repetition(np.arange(500, dtype=np.int32)) is None
    assert longest_repetition(np.empty(0, np.int32)) is None


def test_forwards_are_counted_whether_they_are_equal_or_only_alike() -> None:
    """Prompts of different lengths choose other kernels around equal blocks."""
    other = [51, 52, *FORWARD[2:-2], 53, 54]

    assert repeated_parts(sequence(STEP)) == 2
    assert repeated_parts(sequence(FORWARD, other, SCHEDULER)) == 2
    assert repeated_parts(sequence(FORWARD, SCHEDULER)) == 1


def test_forwards_that_cannot_be_told_are_unknown() -> None:
    """0 is unknown; a step of unlike kernels is not one forward by guess."""
    assert repeated_parts(np.arange(300, dtype=np.int32)) == 0
