"""Whether a call did things that the next one will not: compile, capture graphs, tune, grow the allocator."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from stepscope.capture.memory import read_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Counters that only grow, read before and after a call."""

    compiled_frames: int = 0
    autotunings: int = 0
    reserved_bytes: int | None = None


def read_signals(device: str | None) -> Signals:
    """Read them; torch.compile's counters only where it is loaded."""
    reading = read_memory(device)
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", {})
    inductor = counters.get("inductor", {})
    return Signals(
        compiled_frames=int(counters.get("stats", {}).get("unique_graphs", 0)),
        autotunings=sum(int(count) for name, count in inductor.items() if "autotune" in str(name)),
        reserved_bytes=None if reading is None else reading.reserved_bytes,
    )


def changes(before: Signals, after: Signals, *, graph_captures: int = 0) -> tuple[str, ...]:
    """What happened between two readings that makes a call slower than the next, in words."""
    found = []
    if (count := after.compiled_frames - before.compiled_frames) > 0:
        found.append(f"torch.compile compiled {count} graph{'s' * (count > 1)}")
    if graph_captures:
        found.append(f"{graph_captures} CUDA graph{'s' * (graph_captures > 1)} captured")
    if after.autotunings > before.autotunings:
        found.append(f"{after.autotunings - before.autotunings} kernels autotuned")
    if before.reserved_bytes is not None and after.reserved_bytes is not None:
        grown = after.reserved_bytes - before.reserved_bytes
        if grown > 0:
            found.append(f"the allocator grew by {grown / 1024**2:.0f} MiB")
    return tuple(found)
