"""The trace window: which steps torch.profiler records, exactly, without knowing how many there will be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """Which steps to trace: ``steps`` of them after step 0, or -1 for all; ``all_stages`` for everything."""

    steps: int
    scratch_dir: Path
    all_stages: bool = False
    with_stack: bool = True
    record_shapes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTrace:
    """What torch.profiler exported: more than was asked for, to be cut to ``steps`` by ``record``."""

    path: Path  # plain JSON in the scratch folder; the receiver deletes it
    anchors: tuple[tuple[int, int], ...]  # perf_counter_ns around the start of each stepscope_anchor event
    steps: tuple[int, ...]  # indices that the file is to hold; all of the run where all stages were recorded
    request: TraceRequest
    note: str = ""  # said when fewer steps than asked exist
