"""Where a run's spans are drawn in a trace: over the transfers of weights inside them, not over pauses.

A transfer's time is in no stage or step, so it cuts their spans into segments: dozens, with block offload.
In the file a step is one range, what was launched in it is there, and each transfer is a range inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from stepscope.model.run import Run, Span
from stepscope.record.trace_writing.trace_window import Intervals


def breaks(run: Run, stage_index: int) -> Intervals:
    """Host time over which no span of a stage is drawn: pauses, outside time and the other stages."""
    others = (stage.span for stage in run.stages if stage.stage_index != stage_index)
    segments = ((part.host_start_ns, part.host_end_ns) for span in others for part in span.segments)
    pauses = ((one.host_start_ns, one.host_end_ns) for one in run.pauses)
    outside = ((one.host_start_ns, one.host_end_ns) for one in run.outside)
    return Intervals.union((*segments, *pauses, *outside))


def drawn(run: Run, spans: Iterable[Span], between: Intervals) -> Intervals:
    """Where spans are drawn on the host clock: their segments, and gaps that hold nothing of ``between``."""
    segments = sorted((part.host_start_ns, part.host_end_ns) for span in spans for part in span.segments)
    return Intervals.union((*segments, *_transfers(run, segments, between)))


def transfers_in(run: Run, span: Span, between: Intervals) -> list[tuple[int, int]]:
    """The transfers that cut a span, on the host clock."""
    return _transfers(run, [(part.host_start_ns, part.host_end_ns) for part in span.segments], between)


def _transfers(run: Run, segments: Sequence[tuple[int, int]], between: Intervals) -> list[tuple[int, int]]:
    if not run.transfers:
        return []
    gaps = ((before[1], after[0]) for before, after in pairwise(segments) if after[0] > before[1])
    return [gap for gap in gaps if not between.clip(*gap)]
