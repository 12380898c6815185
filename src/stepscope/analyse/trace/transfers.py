"""The ledger of copies: direction, kind of host memory, size, rate, exposed time, stage and who asked."""

from __future__ import annotations

import numpy as np

from stepscope.analyse.results import TransferRow
from stepscope.analyse.trace.analysis import Analysis
from stepscope.analyse.trace.attribute import source_of
from stepscope.analyse.trace.grouping import group_by, heaviest_of
from stepscope.analyse.trace.nesting import NONE
from stepscope.analyse.trace.stages_and_steps import Marks
from stepscope.model.trace import COPY_KINDS, Trace

_PINNED: dict[int, bool | None] = {1: True, 0: False, -1: None}


def transfer_rows(found: Analysis) -> tuple[TransferRow, ...]:
    """The ledger, what costs most exposed time first. Fills move nothing and are left out."""
    trace, work, attribution = found.trace, found.work, found.attribution
    rows = np.flatnonzero(work.is_copy)
    if not len(rows):
        return ()
    copy = rows - work.kernel_count
    kind, pinned, size = trace.copies.kind[copy], trace.copies.pinned[copy], trace.copies.bytes[copy]
    duration = work.end_ns[rows] - work.start_ns[rows]
    source = attribution.source[rows].astype(np.int64)
    groups = group_by((kind, pinned, attribution.stage[rows], source))
    totals, exposed = groups.total(duration), groups.total(found.exposed_copy_ns[rows])
    sizes = groups.total(np.maximum(size, 0))
    usual = heaviest_of(groups, attribution.operator[rows], duration + 1)
    ledger = [
        TransferRow(
            kind=COPY_KINDS[int(kind[first])],
            pinned=_PINNED[int(pinned[first])],
            count=int(groups.count[index]),
            bytes=int(sizes[index]),
            total_ms=float(totals[index]) / 1e6,
            gb_per_s=float(sizes[index] / totals[index]) if totals[index] else 0.0,
            exposed_ms=float(exposed[index]) / 1e6,
            stage=_stage(found.marks, int(attribution.stage[rows[first]])),
            source=source_of(trace, attribution, int(rows[first])),
            operator=operator_name(trace, int(attribution.operator[rows[usual[index]]])),
        )
        for index, first in enumerate(groups.first)
    ]
    return tuple(sorted(ledger, key=lambda row: (-row.exposed_ms, -row.bytes)))


def operator_name(trace: Trace, operator: int) -> str | None:
    """The name of an operator row; None for none."""
    return None if operator == NONE else trace.names[int(trace.operators.name[operator])]


def _stage(marks: Marks, stage: int) -> str | None:
    return None if stage == NONE else marks.stages[stage].name
