"""One CUDA graph a forward, as serving engines use them."""

from __future__ import annotations

from typing import Any

import torch


class GraphedForward:
    """A denoiser's forward behind one CUDA graph: captured at the first call, replayed afterwards."""

    def __init__(self, module: Any) -> None:
        self._forward = module.forward
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: dict[str, torch.Tensor] = {}
        self._outputs: tuple[torch.Tensor, ...] = ()

    def __call__(self, **arguments: Any) -> tuple[torch.Tensor, ...]:
        given = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        if self._graph is None:
            self._capture(arguments, given)
        for name, value in given.items():
            self._inputs[name].copy_(value)
        self._graph.replay()
        return tuple(output.clone() for output in self._outputs)

    def _capture(self, arguments: dict[str, Any], given: dict[str, torch.Tensor]) -> None:
        self._inputs = {name: value.clone() for name, value in given.items()}
        static = {**arguments, **self._inputs}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._forward(**static)
            self._forward(**static)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = self._forward(**static)
