"""What torch.compile has done so far."""

from __future__ import annotations


def compile_counts() -> tuple[int, int]:
    """Graphs compiled and graph breaks so far."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
