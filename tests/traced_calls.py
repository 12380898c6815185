"""Traced calls of the tiny pipelines, and what their exports hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pipelines
from observing import observe
from stepscope.capture.clock import DeviceClock
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.observe import ObservedCall, TraceRequest


def trace(
    pipeline: Any, steps: int, asked: int, folder: Path, *, clock: DeviceClock | None = None, **request: Any
) -> ObservedCall:
    wanted = TraceRequest(steps=asked, scratch_dir=folder, **request)
    return observe(pipeline, lambda: pipelines.flux_call(pipeline, steps), trace=wanted, clock=clock)


def trace_sd(pipeline: Any, steps: int, asked: int, folder: Path, **more: Any) -> ObservedCall:
    switching = more.pop("switching", None)
    wanted = TraceRequest(steps=asked, scratch_dir=folder, detail=TraceDetail.OPS, switching=switching)
    return observe(pipeline, lambda: pipelines.sd(pipeline, steps, **more), trace=wanted)


def events_of(observed: ObservedCall) -> list[dict[str, Any]]:
    assert observed.raw_trace is not None
    return json.loads(observed.raw_trace.path.read_text())["traceEvents"]
