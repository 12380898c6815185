"""FLOPs of a trace's operators, each multiplication counted once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.kernels.flop_formulas import dtype_of, flops_of, parse_inputs
from stepscope.model.trace import Operators

__all__ = ["operator_dtypes", "operator_flops"]

_IMPOSSIBLE = 1 << 80
"""A peta-FLOP/s device is busy for forty years with it."""


def operator_flops(
    operators: Operators, names: tuple[str, ...], shapes: tuple[str, ...]
) -> NDArray[np.float64]:
    """FLOPs of every operator: (n,) float64, NaN where it is not counted. The sum of a stage is ``nansum``.

    ``names`` and ``shapes`` are the trace's tables. Operators nest (``aten::linear`` calls ``aten::addmm``),
    so only the innermost ones with a formula count. All NaN in a trace without shapes.
    """
    flops = _flops_of_each(operators, names, shapes)
    known = np.flatnonzero(~np.isnan(flops))
    flops[known[_has_counted_child(operators, known)]] = np.nan
    return flops


def operator_dtypes(
    operators: Operators, names: tuple[str, ...], shapes: tuple[str, ...]
) -> tuple[tuple[str, float], ...]:
    """FLOPs by the dtype of what is multiplied, most first: which of a device's peaks to compare with."""
    flops = operator_flops(operators, names, shapes)
    sums: dict[str, float] = {}
    counted = np.flatnonzero(~np.isnan(flops))
    distinct, inverse = np.unique(operators.shapes[counted], return_inverse=True)
    totals = np.bincount(inverse, weights=flops[counted], minlength=len(distinct))
    for shape, total in zip(distinct, totals, strict=True):
        inputs = parse_inputs(shapes[shape])
        dtype = None if inputs is None else dtype_of(inputs)
        if dtype is not None:
            sums[dtype] = sums.get(dtype, 0.0) + float(total)
    return tuple(sorted(sums.items(), key=lambda item: -item[1]))


def _flops_of_each(
    operators: Operators, names: tuple[str, ...], shapes: tuple[str, ...]
) -> NDArray[np.float64]:
    """Every operator's own FLOPs, nested or not; each distinct pair of name and shapes is worked out once."""
    flops = np.full(len(operators.name), np.nan)
    recorded = np.flatnonzero(operators.shapes >= 0)
    pairs = operators.name[recorded].astype(np.int64) * max(len(shapes), 1) + operators.shapes[recorded]
    distinct, inverse = np.unique(pairs, return_inverse=True)
    values = [
        _flops_or_nan(names[int(pair) // len(shapes)], shapes[int(pair) % len(shapes)]) for pair in distinct
    ]
    flops[recorded] = np.array(values, dtype=np.float64)[inverse]
    return flops


def _flops_or_nan(operator: str, shapes_text: str) -> float:
    inputs = parse_inputs(shapes_text)
    flops = None if inputs is None else flops_of(operator, inputs)
    # Sizes are a file's word: what no device could compute is not a number of FLOPs.
    return float("nan") if flops is None or not 0 <= flops < _IMPOSSIBLE else float(flops)


def _has_counted_child(operators: Operators, known: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Of the operators ``known`` (indices), which have another of them inside, on the same thread.

    Sorted by thread, start and falling duration, a child follows its parent at once. The child's middle is
    compared rather than its end: recorders round, and siblings may overlap by a nanosecond.
    """
    start, duration = operators.start_ns[known], operators.duration_ns[known]
    order = np.lexsort((-duration, start, operators.thread[known], operators.process[known]))
    start, duration = start[order], duration[order]
    thread, process = operators.thread[known][order], operators.process[known][order]
    has_child = np.zeros(len(known), dtype=np.bool_)
    if len(known) > 1:
        together = (thread[1:] == thread[:-1]) & (process[1:] == process[:-1])
        inside = start[1:] + duration[1:] // 2 < start[:-1] + duration[:-1]
        same = (start[1:] == start[:-1]) & (duration[1:] == duration[:-1])
        has_child[order[:-1]] = together & (inside | same)
    return has_child
