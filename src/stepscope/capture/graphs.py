"""CUDA graphs, counted from outside: captures and replays during an observed call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from stepscope.capture.active import ACTIVE
from stepscope.capture.wrapping import Wrappers


def watch_graphs(wrappers: Wrappers) -> None:
    """Wrap ``torch.cuda.CUDAGraph``, which torch.compile's graph trees use too."""
    graphs = sys.modules.get("torch.cuda.graphs")
    if graphs is not None:
        wrappers.wrap(graphs.CUDAGraph, "replay", _count_replay)
        wrappers.wrap(graphs.CUDAGraph, "capture_begin", _count_capture)


def _count_replay(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = ACTIVE.get()
        if call is not None:
            call.graph_replays += 1
        return original(self, *args, **kwargs)

    return observed


def _count_capture(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = ACTIVE.get()
        if call is not None:
            call.graph_captures += 1
        return original(self, *args, **kwargs)

    return observed
