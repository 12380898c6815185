"""The operators of a trace without GPU work: by name, by category, by line and by module.

The same questions as of kernels, with the operators' self time instead of the GPU's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepscope.analyse.kernels.operator_categories import operator_category
from stepscope.analyse.results import CategoryRow, KernelRow, OperatorTime, PlaceRow, Source
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import Attribution, HostPlaces, attribution_at, source_of
from stepscope.analyse.trace.gpu_work import CATEGORIES
from stepscope.analyse.trace.grouping import Groups, group_by, heaviest_of
from stepscope.analyse.trace.kernel_table import stages_of
from stepscope.analyse.trace.module_paths import module_paths_at
from stepscope.analyse.trace.nesting import NONE
from stepscope.analyse.trace.operator_time import SelfTime, self_times
from stepscope.model.trace import I32, I64, Trace

MOST_PLACES = 500
"""Lines and modules told at most: a view shows a few dozen, and each looks its frames up."""

_NUMBERED = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Counted:
    """The operators that are counted: every column has one entry each."""

    trace: Trace
    time: SelfTime
    place: HostPlaces
    attribution: Attribution
    name: I32
    category: I32  # index into CATEGORIES
    self_ns: I64
    python_ns: I64

    def share(self, spent_ns: int) -> float:
        return spent_ns / self.time.traced_ns if self.time.traced_ns else 0.0


def operator_time(found: Analysis) -> OperatorTime | None:
    """What the operators took; None where the GPU's work tells it, or there are none."""
    trace = found.trace
    if len(found.work) or not len(trace.operators.start_ns):
        return None
    time = self_times(trace, found.marks)
    rows = time.counted
    if not len(rows):
        return None
    operators = trace.operators
    place = HostPlaces(operators.process[rows], operators.thread[rows], operators.start_ns[rows])
    counted = _Counted(
        trace=trace,
        time=time,
        place=place,
        attribution=attribution_at(trace, found.marks, place, rows),
        name=operators.name[rows],
        category=_categories(trace, operators.name[rows]),
        self_ns=time.self_ns[rows],
        python_ns=time.python_ns[rows],
    )
    located = int(counted.self_ns[counted.attribution.source != NONE].sum())
    return OperatorTime(
        basis=time.basis,
        traced_ms=time.traced_ns / 1e6,
        inside_ms=time.inside_ns / 1e6,
        calling_ms=time.calling_ns / 1e6,
        count=len(rows),
        outermost_count=int(np.count_nonzero(time.outermost[rows])),
        located_share=located / max(time.inside_ns, 1) if trace.has_stacks or trace.sources else None,
        rows=_by_name(found, counted),
        categories=_by_category(counted),
        lines=_by_line(counted),
        modules=_by_module(counted),
    )


def _by_name(found: Analysis, counted: _Counted) -> tuple[KernelRow, ...]:
    """All operators by name, what takes most time first."""
    groups = group_by((counted.name,))
    totals = groups.total(counted.self_ns)
    sourced = heaviest_of(groups, _lines(counted), counted.self_ns + 1)
    stages = stages_of(found.marks, counted.attribution, groups, len(counted.name))
    return tuple(
        KernelRow(
            name=counted.trace.names[int(counted.name[groups.first[index]])],
            category=CATEGORIES[int(counted.category[groups.first[index]])].value,
            count=int(groups.count[index]),
            total_ms=float(totals[index]) / 1e6,
            share=counted.share(int(totals[index])),
            mean_us=float(totals[index] / groups.count[index]) / 1e3,
            source=_source(counted, int(sourced[index])),
            stages=stages[index],
        )
        for index in np.argsort(-totals, kind="stable")
    )


def _by_category(counted: _Counted) -> tuple[CategoryRow, ...]:
    groups = group_by((counted.category,))
    totals = groups.total(counted.self_ns)
    return tuple(
        CategoryRow(
            name=CATEGORIES[int(counted.category[groups.first[index]])].value,
            total_ms=float(totals[index]) / 1e6,
            share=counted.share(int(totals[index])),
            count=int(groups.count[index]),
        )
        for index in np.argsort(-totals, kind="stable")
    )


def _by_line(counted: _Counted) -> tuple[PlaceRow, ...]:
    """By line of Python; operators whose line is not known are in no row."""
    line, modules = _lines(counted), _modules(counted)
    known = np.flatnonzero(line != NONE)
    groups = group_by((line[known],))
    around = _modules_of(groups, modules.path[known], counted.self_ns[known])
    rows = []
    for place in _places(counted, groups, known):
        module, count = around[place.group]
        name = None if module == NONE else modules.texts[module]
        row = place.told(counted, _source(counted, place.row), name)
        rows.append(replace(row, module_count=count))
    return tuple(rows)


def _modules_of(groups: Groups, path: I64, spent: I64) -> list[tuple[int, int]]:
    """For each group the module path with most time, and how many there are."""
    if not len(path):
        return []
    heaviest = path[heaviest_of(groups, path, spent + 1)]
    pairs = group_by((groups.of, path))
    counts = np.bincount(groups.of[pairs.first], weights=path[pairs.first] != NONE, minlength=len(groups))
    return [(int(module), int(count)) for module, count in zip(heaviest, counts, strict=True)]


def _by_module(counted: _Counted) -> tuple[PlaceRow, ...]:
    """By path of the module whose code called; the numbers of repeated blocks are one."""
    modules = _modules(counted)
    known = np.flatnonzero(modules.path != NONE)
    rows = []
    for place in _places(counted, group_by((modules.path[known],)), known):
        module = int(modules.path[place.row])
        row = place.told(counted, None, modules.texts[module])
        rows.append(replace(row, calls=int(modules.calls[module]) or None))
    return tuple(rows)


def _lines(counted: _Counted) -> I64:
    """An id of the line that called each operator: a line that many modules run through is one."""
    first: dict[tuple[str, int, str, bool], int] = {}
    same = [
        first.setdefault((one.file, one.line, one.function, one.line_exact), index)
        for index, one in enumerate(counted.trace.sources)
    ]
    # Exact sources have the ids above those of names, which frames have.
    ids = np.concatenate(
        (np.arange(len(counted.trace.names)), len(counted.trace.names) + np.array(same, int))
    )
    source = counted.attribution.source
    return np.where(source != NONE, ids[source], NONE).astype(np.int64)


def _source(counted: _Counted, row: int) -> Source | None:
    """The source of one operator, its module as the kind of module that runs it."""
    source = source_of(counted.trace, counted.attribution, row)
    if source is None or source.module_path is None:
        return source
    return replace(source, module_path=_folded(source.module_path))


def _folded(module_path: str) -> str:
    """A path with the numbers of repeated blocks as stars."""
    return _NUMBERED.sub("*", module_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One group of operators, and one of them for the operator that takes most of its time."""

    group: int
    row: int
    count: int
    total_ns: int
    python_ns: int

    def told(self, counted: _Counted, source: Source | None, module: str | None) -> PlaceRow:
        """The row as it is published."""
        return PlaceRow(
            source=source,
            module=module,
            total_ms=self.total_ns / 1e6,
            share=counted.share(self.total_ns),
            count=self.count,
            category=CATEGORIES[int(counted.category[self.row])].value,
            operator=counted.trace.names[int(counted.name[self.row])],
            python_ms=self.python_ns / 1e6,
        )


def _places(counted: _Counted, groups: Groups, rows: I64) -> Sequence[_Place]:
    """The groups of ``rows``, what takes most time first."""
    if not len(rows):
        return ()
    spent = counted.self_ns[rows]
    totals, between = groups.total(spent), groups.total(counted.python_ns[rows])
    usual = heaviest_of(groups, counted.name[rows].astype(np.int64), spent + 1)
    order = np.argsort(-totals, kind="stable")[:MOST_PLACES]
    return [
        _Place(
            group=int(index),
            row=int(rows[usual[index]]),
            count=int(groups.count[index]),
            total_ns=int(totals[index]),
            python_ns=int(between[index]),
        )
        for index in order
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Modules:
    """For each operator the id of its module's path (``NONE``: not known), and how often each was called."""

    path: I64
    texts: Sequence[str]
    calls: I64  # by path


def _modules(counted: _Counted) -> _Modules:
    """From the recorded lines where there are any, else from frames."""
    trace, source = counted.trace, counted.trace.operators.source[counted.attribution.operator]
    if not (source != NONE).any():
        return _Modules(*module_paths_at(trace, counted.place))
    texts: dict[str, int] = {}
    whole: dict[str, int] = {}
    of_source = np.full((2, len(trace.sources) + 1), NONE, np.int64)  # the last one for no source
    for index, line in enumerate(trace.sources):
        if line.module_path:
            of_source[0, index] = texts.setdefault(_folded(line.module_path), len(texts))
            of_source[1, index] = whole.setdefault(line.module_path, len(whole))
    path, module = of_source[:, source]
    # A module is called once in a forward, as a rule: a call for each forward that has operators of it.
    runs = group_by((module, counted.attribution.step, counted.attribution.forward))
    called = path[runs.first]
    return _Modules(path, tuple(texts), np.bincount(called[called != NONE], minlength=len(texts)))


def _categories(trace: Trace, names: I32) -> I32:
    """The category of every operator; the rules run once per distinct name."""
    distinct, inverse = np.unique(names, return_inverse=True)
    codes = [CATEGORIES.index(operator_category(trace.names[int(name)])) for name in distinct]
    result: I32 = np.array(codes, np.int32)[inverse]
    return result
