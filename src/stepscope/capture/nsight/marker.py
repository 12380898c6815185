"""Ranges and captures of Nsight Systems: the ``nvtx`` package, and CUDA's profiler switch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepscope.capture.active import ActiveCall
from stepscope.capture.labels import watch_labels
from stepscope.capture.nsight.layers import LayerRanges
from stepscope.capture.nsight.ranges import Gate, Marker, NvtxRanges
from stepscope.capture.wrapping import Wrappers
from stepscope.model.errors import RunFailedError
from stepscope.model.nsight import CAPTURE_RANGE, NVTX_DOMAIN, Capture, Trigger


class NvtxMarker:
    """Ranges in our domain, with registered strings (those that can trigger a capture)."""

    def __init__(self) -> None:
        if importlib.util.find_spec("nvtx") is None:
            raise RunFailedError(
                "NVTX ranges need the nvtx package.", remedy='Install it: pip install "nvtx<0.2.12"'
            )
        import nvtx

        self._make: Callable[..., Any] = nvtx.annotate
        self._by_name: dict[str, Any] = {}  # each is made once: a seventh of the cost of nvtx.push_range
        self._open: list[Any] = []

    def push(self, name: str) -> None:
        """Open a range."""
        made = self._by_name.get(name)
        if made is None:
            made = self._by_name[name] = self._make(name, domain=NVTX_DOMAIN)
        made.__enter__()
        self._open.append(made)

    def pop(self) -> None:
        """Close the last opened one."""
        self._open.pop().__exit__(None, None, None)


class NvtxGate:
    """Opens the capture of ``nsys -c nvtx`` by the range that it waits for."""

    def __init__(self) -> None:
        self.spent = False
        self._range: Any = None

    def open(self) -> None:
        """Begin the range. A start/end range: it may end inside or outside of any pushed one."""
        import nvtx

        self.spent = True
        self._range = nvtx.start_range(CAPTURE_RANGE, domain=NVTX_DOMAIN)

    def close(self) -> None:
        """End it."""
        import nvtx

        nvtx.end_range(self._range)


class CudaProfilerGate:
    """Opens the capture of ``nsys -c cudaProfilerApi``. The device is drained at both ends."""

    def __init__(self) -> None:
        self.spent = False

    def open(self) -> None:
        """CudaProfilerStart."""
        import torch

        self.spent = True
        torch.cuda.synchronize()
        torch.cuda.profiler.start()

    def close(self) -> None:
        """CudaProfilerStop, after everything that was launched has run."""
        import torch

        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvtxRequest:
    """That observed calls get NVTX ranges, and what of the first one is captured."""

    marker: Marker
    capture: Capture | None = None
    gate: Gate | None = None
    layers: bool = False  # a range for each module too


def nvtx_request(capture: Capture | None, *, layers: bool = False) -> NvtxRequest:
    """The request that uses the real marker and gate. Raises RunFailedError where nvtx is not installed."""
    gates: dict[Trigger, Callable[[], Gate]] = {
        Trigger.NVTX: NvtxGate,
        Trigger.CUDA_PROFILER: CudaProfilerGate,
    }
    make = None if capture is None else gates.get(capture.trigger)
    return NvtxRequest(
        marker=NvtxMarker(), capture=capture, gate=None if make is None else make(), layers=layers
    )


def watch_call(call: ActiveCall, request: NvtxRequest, wrappers: Wrappers) -> None:
    """Put ranges on a call that is about to begin; its ``finish`` closes them."""
    ranges = NvtxRanges(call, request.marker, request.capture, request.gate)
    call.ranges = LayerRanges(call, ranges, request.marker) if request.layers else ranges
    watch_labels(wrappers)
    call.ranges.begin()
