"""Rows grouped by equal keys, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.model.trace import I64


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """``of`` gives each row's group; ``first`` one row of each group; ``count`` its size."""

    of: I64
    first: I64
    count: I64

    def __len__(self) -> int:
        return len(self.first)

    def total(self, values: NDArray[np.int64]) -> I64:
        """The sum of a column over each group, exact below 2^53."""
        return np.bincount(self.of, weights=values, minlength=len(self)).astype(np.int64)


def group_by(columns: Sequence[NDArray[np.int_] | NDArray[np.int32] | NDArray[np.int64]]) -> Groups:
    """Group rows that agree in every column."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        _, code = np.unique(code * max(len(values), 1) + inverse, return_inverse=True)
    _, first, of, count = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    return Groups(of.astype(np.int64), first.astype(np.int64), count.astype(np.int64))


def heaviest_of(groups: Groups, keys: I64, weights: I64) -> I64:
    """For each group, one row of the key that has most weight in it."""
    pairs = group_by((groups.of, keys))
    weight = pairs.total(weights)
    owner = groups.of[pairs.first]
    order = np.lexsort((weight, owner))
    last = np.flatnonzero(np.concatenate((owner[order][1:] != owner[order][:-1], [True])))
    heaviest: I64 = pairs.first[order[last]]
    return heaviest
