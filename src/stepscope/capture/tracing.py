"""What is to be traced, and what the profiler left: the words between the window and its callers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from stepscope.model.source_map import LineLog
from stepscope.model.vocabulary import TraceDetail


class Switching(Enum):
    """How the profiler is kept to the window."""

    PAUSE = auto()  # it starts and stops in pauses inside the call; stopping includes its processing
    TOGGLE = auto()  # it starts before the call and stops after it; collection is switched in the pauses
    WHOLE = auto()  # it records the whole call, and the export is cut


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """Which steps to trace: ``steps`` of them after step 0, or -1 for all; ``all_stages`` for everything."""

    steps: int
    scratch_dir: Path
    all_stages: bool = False
    detail: TraceDetail = TraceDetail.FULL
    switching: Switching | None = None  # None: what suits the detail and the device
    mapping: bool = False  # record operators with shapes, and each line of Python beside them


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTrace:
    """What torch.profiler exported: more than was asked for, to be cut to ``steps`` by ``record``."""

    path: Path  # plain JSON in the scratch folder; the receiver deletes it
    anchors: tuple[tuple[int, int], ...]  # perf_counter_ns before and after each stepscope_anchor began
    request: TraceRequest
    steps: tuple[int, ...] = ()  # indices that the file is to hold
    lines: LineLog | None = None  # of a mapping pass
