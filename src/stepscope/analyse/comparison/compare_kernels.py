"""Where the GPU time went between two traces: kernels gone, new and changed, summing to it all."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.analyse.comparison.compare_results import KernelChange, KernelComparison
from stepscope.analyse.results import RankReport
from stepscope.model.vocabulary import KernelCategory

SAME_SHARE = 0.02
"""A kernel launched as often whose time is within 2 % is the same kernel."""

UNLISTED = "(kernels not listed)"
COPIES = "(copies and fills)"


@dataclass(frozen=True, slots=True)
class _Time:
    count: float  # per step it may be a fraction
    total_ms: float


_Key = tuple[str, str]  # kernel name, category
_NOTHING = _Time(0.0, 0.0)


def compare_kernels(base: RankReport, new: RankReport) -> KernelComparison:
    """Kernel time of both traces by category and by kernel, the largest difference first.

    Traces of different numbers of steps are compared per step, where both have steps: times and counts are
    then those of one step. Rows of either table sum to ``difference_ms``; what a report's kernel list leaves
    out of a category is one row of that category.
    """
    left_steps, right_steps = len(base.steps), len(new.steps)
    per_step = left_steps != right_steps and min(left_steps, right_steps) > 0
    divisors = (left_steps, right_steps) if per_step else (1, 1)
    left, right = _categories(base, divisors[0]), _categories(new, divisors[1])
    base_ms = sum(time.total_ms for time in left.values())
    new_ms = sum(time.total_ms for time in right.values())
    return KernelComparison(
        base_ms=base_ms,
        new_ms=new_ms,
        difference_ms=new_ms - base_ms,
        categories=_changes(left, right),
        kernels=_changes(_kernels(base, left, divisors[0]), _kernels(new, right, divisors[1])),
        per="step" if per_step else "run",
    )


def _categories(rank: RankReport, divisor: int) -> dict[_Key, _Time]:
    return {
        (row.name, row.name): _Time((row.count + row.copy_count) / divisor, row.total_ms / divisor)
        for row in rank.categories
    }


def _kernels(rank: RankReport, categories: dict[_Key, _Time], divisor: int) -> dict[_Key, _Time]:
    """Time by kernel, and for each category what its listed kernels leave of it."""
    listed: dict[_Key, _Time] = {}
    sums: dict[str, _Time] = {}
    for row in rank.kernels:
        time = _Time(row.count / divisor, row.total_ms / divisor)
        listed[row.name, row.category] = _plus(listed.get((row.name, row.category), _NOTHING), time)
        sums[row.category] = _plus(sums.get(row.category, _NOTHING), time)
    for (category, _), time in categories.items():
        known = sums.get(category, _NOTHING)
        rest = _Time(time.count - known.count, time.total_ms - known.total_ms)
        if abs(rest.count) > 1e-6 or abs(rest.total_ms) > 1e-9 * max(time.total_ms, 1.0):
            name = COPIES if category == KernelCategory.MEMORY.value else UNLISTED
            listed[name, category] = rest
    return listed


def _plus(one: _Time, other: _Time) -> _Time:
    return _Time(one.count + other.count, one.total_ms + other.total_ms)


def _changes(base: dict[_Key, _Time], new: dict[_Key, _Time]) -> tuple[KernelChange, ...]:
    keys = dict.fromkeys([*base, *new])
    rows = [_change(key, base.get(key, _NOTHING), new.get(key, _NOTHING)) for key in keys]
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference_ms), row.name)))


def _change(key: _Key, base: _Time, new: _Time) -> KernelChange:
    name, category = key
    return KernelChange(
        name=name,
        category=category,
        state=_state(base, new),
        base_count=round(base.count),
        new_count=round(new.count),
        base_ms=base.total_ms,
        new_ms=new.total_ms,
        difference_ms=new.total_ms - base.total_ms,
    )


def _state(base: _Time, new: _Time) -> str:
    if base.count == 0:
        return "appeared"
    if new.count == 0:
        return "disappeared"
    as_often = abs(base.count - new.count) < 0.5
    alike = abs(new.total_ms - base.total_ms) <= SAME_SHARE * abs(base.total_ms)
    return "same" if as_often and alike else "changed"
