"""What was seen at work in a trace, as against what was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stepscope.analyse.intervals import union
from stepscope.analyse.kernels.categories import category_of
from stepscope.analyse.kernels.families import attention_family, gemm_dtype, is_compiled
from stepscope.analyse.kernels.flops import operator_dtypes
from stepscope.analyse.results import EngagedView
from stepscope.model.trace import Kernels, Trace
from stepscope.model.vocabulary import KernelCategory

__all__ = ["engaged"]

_LEAST_SHARE = 0.01
"""A dtype below this share of the GEMMs' time is a helper's, not the model's."""

_GRAPH_LAUNCH = re.compile(r"^(?:cuda|cu|hip)GraphLaunch")


def engaged(trace: Trace, busy_ns: int) -> EngagedView:
    """Attention implementation, GEMM dtypes, compiled kernels and graph replays of a trace.

    ``busy_ns`` is the GPU busy time, summed over devices, that the compiled share refers to.
    """
    return EngagedView(
        attention=_attention(trace),
        gemm_dtypes=_gemm_dtypes(trace),
        compiled_kernel_share=_compiled_ns(trace) / busy_ns if busy_ns > 0 else 0.0,
        graph_replays=_graph_replays(trace),
    )


def _attention(trace: Trace) -> str | None:
    """The family with the most kernel time; where no kernel tells, the operators with the most host time."""
    kernels, operators = trace.kernels, trace.operators
    families = _time_by(trace.names, kernels.name, kernels.duration_ns, attention_family)
    if not families:
        families = _time_by(trace.names, operators.name, operators.duration_ns, attention_family)
    return next(iter(families), None)


def _gemm_dtypes(trace: Trace) -> tuple[str, ...]:
    """Dtypes of the GEMMs by time; where kernel names do not tell (Triton, CPU), by recorded FLOPs."""
    times = _time_by(trace.names, trace.kernels.name, trace.kernels.duration_ns, _dtype_of_gemm)
    if not times:
        times = dict(operator_dtypes(trace.operators, trace.names, trace.shapes))
    total = sum(times.values())
    return tuple(dtype for dtype, time in times.items() if time >= _LEAST_SHARE * total)


def _dtype_of_gemm(name: str) -> str | None:
    return gemm_dtype(name) if category_of(name) is KernelCategory.GEMM else None


def _time_by(
    names: tuple[str, ...],
    name: NDArray[np.int32],
    duration_ns: NDArray[np.int64],
    label_of: Callable[[str], str | None],
) -> dict[str, float]:
    """Summed durations by label, most first; ``label_of`` is asked once for each distinct name."""
    totals: dict[str, float] = {}
    distinct, inverse = np.unique(name, return_inverse=True)
    sums = np.bincount(inverse, weights=duration_ns, minlength=len(distinct))
    for index, total in zip(distinct, sums, strict=True):
        label = label_of(names[int(index)])
        if label is not None:
            totals[label] = totals.get(label, 0.0) + float(total)
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def _compiled_ns(trace: Trace) -> int:
    """Time in which a compiled kernel ran, summed over devices."""
    kernels = trace.kernels
    compiled = _rows_where(trace.names, kernels, is_compiled)
    total = 0
    for device in np.unique(kernels.device[compiled]):
        rows = compiled & (kernels.device == device)
        start = kernels.start_ns[rows]
        total += union(start, start + kernels.duration_ns[rows]).total_ns
    return total


def _rows_where(names: tuple[str, ...], kernels: Kernels, holds: Callable[[str], bool]) -> NDArray[np.bool_]:
    distinct, inverse = np.unique(kernels.name, return_inverse=True)
    rows: NDArray[np.bool_] = np.array([holds(names[int(index)]) for index in distinct], np.bool_)[inverse]
    return rows


def _graph_replays(trace: Trace) -> int:
    """Launches of a CUDA or HIP graph; a runtime call and its driver call share a correlation."""
    launches = trace.launches
    graph = [index for index, name in enumerate(trace.names) if _GRAPH_LAUNCH.match(name)]
    rows = np.isin(launches.name, graph)
    return len(np.unique(np.stack((launches.process[rows], launches.correlation[rows])), axis=1).T)
