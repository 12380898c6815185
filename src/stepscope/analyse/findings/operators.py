"""Rules about traces without GPU work: steps that pass in Python, operator by small operator."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.analyse.findings.thresholds import percent, worth_telling
from stepscope.analyse.results import Finding, OperatorTime, PlaceRow, RankReport
from stepscope.analyse.trace.analysis import Analysis

SMALL_OPERATOR_US = 10.0
"""An operator shorter than this takes about as long as the Python that calls it: the time one launch takes a
host too (``host.TINY_KERNEL_NS``)."""

LOOP_FROM = 500
"""Operators in one call of a module from which it is a loop in Python: the most that one of the published
models' modules calls itself is about 100 (an attention of Qwen-Image, nested ones counted)."""

LONGEST_PATH = 120
"""Characters of a module's path in a sentence."""

PYTHON_FROM = 0.5
"""Share of the traced steps from which the Python between small operators is most of them."""

_FEWER = (
    "Fewer, larger operators: one call on the whole tensor instead of a loop over heads, tokens or frames "
    "(torch.nn.functional.scaled_dot_product_attention for attention)"
)


def python_loops(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Modules that call hundreds of small operators at a time."""
    operators = rank.operators
    if operators is None:
        return
    for row in operators.modules:
        cost_ms = row.total_ms + row.python_ms
        mean_us = row.total_ms * 1e3 / row.count
        if not row.calls or row.count < LOOP_FROM * row.calls or mean_us >= SMALL_OPERATOR_US:
            continue
        if worth_telling(found, cost_ms * 1e6):
            yield _loop(operators, row, cost_ms, mean_us)


def _loop(operators: OperatorTime, row: PlaceRow, cost_ms: float, mean_us: float) -> Finding:
    lines = [line for line in operators.lines if line.module == row.module and line.source]
    a_call, module = row.count // (row.calls or 1), _cut(row.module or "")
    return Finding(
        id="host.python_loop",
        title=f"{_last(module)} calls {a_call:,} small operators in one call",
        evidence=(
            f"{module}: {row.count:,} operators of {mean_us:.1f} µs (mean) in {operators.basis}; with "
            f"the Python before them {percent(cost_ms, operators.traced_ms)} of the time, which is the most "
            "that can be won"
        ),
        cost_ms=cost_ms,
        source=lines[0].source if lines else None,
        remedy=f"{_FEWER}.",
    )


def _cut(path: str) -> str:
    """The end of a path that is longer than any of a model's."""
    return path if len(path) <= LONGEST_PATH else f"…{path[-LONGEST_PATH:]}"


def _last(path: str) -> str:
    """The end of a module's path, a number with what it numbers."""
    name = path.rpartition(".")[2]
    return ".".join(path.split(".")[-2:]) if name == "*" else name


def python_bound(found: Analysis, rank: RankReport) -> Iterable[Finding]:
    """Most of the steps is Python between small operators. Not told where recorded frames slow the Python."""
    operators = rank.operators
    if operators is None or found.trace.has_stacks or not found.marks.steps:
        return
    between_ms = operators.calling_ms
    mean_us = operators.inside_ms * 1e3 / max(operators.outermost_count, 1)
    if between_ms < PYTHON_FROM * operators.traced_ms or mean_us >= SMALL_OPERATOR_US:
        return
    yield Finding(
        id="host.python_bound",
        title="The steps are Python-bound: operators are called one by one and are small",
        evidence=(
            f"{operators.outermost_count:,} operators, not counting those inside, of {mean_us:.1f} µs (mean) "
            f"in {operators.basis}; {percent(between_ms, operators.traced_ms)} passes in Python between "
            "them, a part of it in recording"
        ),
        cost_ms=between_ms,
        source=None,
        remedy=f"{_FEWER}; a larger batch; torch.compile of the repeated blocks "
        "(compile_repeated_blocks). Step times are those of a run without a profiler.",
    )
