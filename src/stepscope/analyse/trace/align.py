"""Two recordings of the same work, call by call: which call of one is which call of the other.

Equal sequences are one comparison. Where they part (a cache skipped blocks, a scheduler warmed up), they are
brought together again at the nearest place where a few calls in a row are equal; calls in between are matched
by place if both sides have as many, or stay unmatched. The cost is that of one sort.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.model.source_map import Match
from stepscope.model.trace import I64

IN_A_ROW = 3
"""Calls that must be equal in a row to bring two sequences together again."""

LOOK_AHEAD = 256
"""Calls of the first sequence, beyond the place where they part, that are tried."""

_FIRST_CHUNK = 256
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

U64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alignment:
    """For each call of the first sequence its partner in the second (-1: none), and how sure that is."""

    partner: I64
    match: NDArray[np.int8]

    @property
    def checked(self) -> int:
        """How many calls have a partner of the same name and size."""
        return int((self.match == Match.CHECKED).sum())


def align(wanted: U64, known: U64) -> Alignment:
    """Align two sequences of tokens; equal tokens mean calls of the same name and size.

    Partners rise strictly. A checked match has equal tokens.
    """
    partner = np.full(len(wanted), -1, np.int64)
    head = _common(wanted, known)
    tail = _common(wanted[head:][::-1], known[head:][::-1])
    partner[:head] = np.arange(head)
    partner[len(wanted) - tail :] = np.arange(len(known) - tail, len(known))
    middle = slice(head, len(wanted) - tail)
    found = _meet_again(wanted[middle], known[head : len(known) - tail])
    partner[middle] = np.where(found >= 0, found + head, -1)
    match = np.where(partner >= 0, Match.CHECKED, Match.NONE).astype(np.int8)
    _match_by_place(partner, match, len(known))
    return Alignment(partner=partner, match=match)


def _common(first: U64, second: U64) -> int:
    """Length of the common prefix; looks no further than twice as far."""
    length, done, chunk = min(len(first), len(second)), 0, _FIRST_CHUNK
    while done < length:
        end = min(done + chunk, length)
        differs = np.flatnonzero(first[done:end] != second[done:end])
        if len(differs):
            return done + int(differs[0])
        done, chunk = end, 2 * chunk
    return length


def _meet_again(wanted: U64, known: U64) -> I64:
    """Partners of sequences that differ at both ends."""
    partner = np.full(len(wanted), -1, np.int64)
    grams = _Grams(known)
    asked = _grams(wanted)
    row = column = 0
    while row < len(asked) and column < len(known):
        meeting = grams.nearest(asked[row : row + LOOK_AHEAD], column)
        if meeting is None:
            row += LOOK_AHEAD
            continue
        row, column = row + meeting[0], meeting[1]
        run = _common(wanted[row:], known[column:])
        partner[row : row + run] = np.arange(column, column + run)
        row, column = row + run, column + run
    return partner


class _Grams:
    """Where in a sequence a few calls in a row occur."""

    def __init__(self, tokens: U64) -> None:
        grams = _grams(tokens)
        self._places = np.argsort(grams, kind="stable")
        self._sorted = grams[self._places]

    def nearest(self, asked: U64, column: int) -> tuple[int, int] | None:
        """``(row, column)`` at or after ``(0, column)`` with equal grams and the fewest calls left out."""
        first = np.searchsorted(self._sorted, asked, "left").tolist()
        last = np.searchsorted(self._sorted, asked, "right").tolist()
        best, cost = None, np.iinfo(np.int64).max
        for row, (low, high) in enumerate(zip(first, last, strict=True)):
            if row >= cost:
                break
            place = low + int(np.searchsorted(self._places[low:high], column))
            if place < high and row + int(self._places[place]) - column < cost:
                best = (row, int(self._places[place]))
                cost = row + best[1] - column
        return best


def _grams(tokens: U64) -> U64:
    """One number for each place and the calls that follow it; ``IN_A_ROW - 1`` fewer than calls."""
    count = max(len(tokens) - IN_A_ROW + 1, 0)
    grams = np.zeros(count, np.uint64)
    for offset in range(IN_A_ROW):
        grams = grams * _MULTIPLIER + tokens[offset : offset + count]
    return grams


def _match_by_place(partner: I64, match: NDArray[np.int8], known: int) -> None:
    """Match runs between two checked calls, or an end, where both sides are as long."""
    checked = np.flatnonzero(partner >= 0)
    edges = np.concatenate(([-1], checked, [len(partner)]))
    others = np.concatenate(([-1], partner[checked], [known]))
    gaps = np.diff(edges)
    for index in np.flatnonzero((gaps > 1) & (gaps == np.diff(others))):
        inside = slice(int(edges[index]) + 1, int(edges[index + 1]))
        partner[inside] = np.arange(int(others[index]) + 1, int(others[index + 1]))
        match[inside] = Match.BY_PLACE
