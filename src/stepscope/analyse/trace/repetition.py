"""Finding the denoising loop in a bare sequence of kernel names: the longest repetition.

A loop of n steps is a stretch in which every kernel equals the one a period later. A few may differ: the
width of a vectorised kernel changes with the alignment of what it is given, from step to step. Blocks repeat
too, but only inside one forward, and two forwards of guidance only inside one step; the step's period is the
one whose repetition reaches furthest. Two steps together repeat as far as one: of equals the shortest wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.model.trace import I32, I64

WORD = 24
"""Kernels per hashed word: long enough to be rare, short enough to fit between two forwards."""

CANDIDATES = 256
"""Periods tried, most promising first; the step's own has always been among the first dozen."""


BRIDGED = 8
"""Differing kernels in a row that do not end a repetition, at most one in fifty of its period."""


MOST_FORWARDS = 4
"""Guidance makes two forwards a step, perturbed guidance three or four; more equal parts are blocks."""

FILLED = 0.95
"""Share of a step that its forwards fill; the rest is the scheduler's."""


MOSTLY_FILLED = 0.7
"""Share of a step that the blocks of its forwards fill, at least, where blocks are what is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """``count`` periods of ``period`` elements from ``start``; ``covered`` counts a partial last one too."""

    start: int
    period: int
    count: int
    covered: int


def longest_repetition(sequence: I32) -> Repetition | None:
    """The repetition that covers most of the sequence, at least two whole periods; None without one."""
    best: Repetition | None = None
    for period in _candidate_periods(sequence):
        start, length = _longest_run(sequence[period:] == sequence[:-period], min(BRIDGED, period // 50))
        if length < period:
            continue
        found = _whole_periods(start, period, length + period, len(sequence))
        if best is None or (found.covered, -period) > (best.covered, -best.period):
            best = found
    return best


def _whole_periods(start: int, period: int, covered: int, length: int) -> Repetition:
    """The whole periods of a stretch. One that lacks a fiftieth at an end, where kernels differ, is whole.

    A stretch longer than its periods begins with the end of a period when the recording began inside the
    loop (nothing else is before it); otherwise what follows the loop resembles its beginning by chance.
    """
    count = (covered + period // 50) // period
    excess = covered - count * period
    first = start + max(excess, 0) if start == 0 else start
    first = max(0, min(first, length - count * period))
    return Repetition(start=first, period=period, count=count, covered=covered)


def _candidate_periods(sequence: I32) -> list[int]:
    """Distances at which words of kernels recur, those that explain most of the sequence first."""
    if len(sequence) < 2 * WORD:
        return _short_periods(len(sequence))
    words = _hashed_words(sequence)
    order = np.argsort(words, kind="stable")
    same = words[order][1:] == words[order][:-1]
    distances = (order[1:] - order[:-1])[same]
    values, counts = np.unique(distances, return_counts=True)
    promise = np.minimum(counts, values) * values
    ranked = values[np.argsort(-promise, kind="stable")[:CANDIDATES]]
    return [int(value) for value in ranked if value <= len(sequence) // 2]


def _short_periods(length: int) -> list[int]:
    return list(range(1, length // 2 + 1))


def _hashed_words(sequence: I32) -> I64:
    """One number per position for the ``WORD`` elements that begin there."""
    count = len(sequence) - WORD + 1
    hashed = np.zeros(count, np.uint64)
    values = (sequence.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for offset in range(WORD):
            hashed = hashed * np.uint64(6364136223846793005) + values[offset : offset + count]
    return hashed.view(np.int64)


def _longest_run(equal: NDArray[np.bool_], bridged: int) -> tuple[int, int]:
    """Where the longest stretch of True begins, and its length; up to ``bridged`` False do not end it."""
    starts, ends = _runs(equal, bridged)
    if not len(starts):
        return 0, 0
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest] - starts[longest])


def _run_lengths(equal: NDArray[np.bool_], bridged: int) -> I64:
    starts, ends = _runs(equal, bridged)
    return ends - starts


def _runs(equal: NDArray[np.bool_], bridged: int) -> tuple[I64, I64]:
    """Stretches of True, half-open; up to ``bridged`` False in a row do not end one."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return starts, ends
    splits = starts[1:] - ends[:-1] > bridged
    return starts[np.concatenate(([True], splits))], ends[np.concatenate((splits, [True]))]


def repeated_parts(sequence: I32) -> int:
    """How many equal parts (denoiser forwards) a step's kernels consist of; 0 where nothing repeats.

    Either the parts repeat exactly and fill the step, or each holds one run of equal blocks: guidance with
    prompts of different lengths picks other kernels, but the blocks keep their period.
    """
    found = longest_repetition(sequence)
    if found is None:
        return 0
    if found.count <= MOST_FORWARDS and found.covered >= FILLED * len(sequence):
        return found.count
    runs = _run_lengths(
        sequence[found.period :] == sequence[: -found.period], min(BRIDGED, found.period // 50)
    )
    runs = runs[runs >= found.period] + found.period
    if runs.sum() < MOSTLY_FILLED * len(sequence):
        return 0
    return int(np.count_nonzero(runs >= runs.max() // 2))
