"""The trace window: which steps torch.profiler records, without knowing how many there will be.

The profiler starts before the first denoiser forward and stops before the first known call after the last
wanted step; both happen in a pause, which is in no stage, step or total. The export is cut to the exact
steps later.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.capture.active import ActiveCall, Watcher
from stepscope.model.recording import CallKind
from stepscope.model.run import Anchor, OutsideRun
from stepscope.model.vocabulary import Outside

ANCHOR_NAME = "stepscope_anchor"
ANCHORS_AT_EACH_END = 3
"""The first one warms the path; readers take the narrowest pair."""

_TERMINAL = frozenset({CallKind.DECODING, CallKind.POSTPROCESSING})
_ITERATION_STARTS = frozenset({CallKind.FORWARD, CallKind.CONDITIONER})


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
    anchors: tuple[tuple[int, int], ...]  # perf_counter_ns before and after each stepscope_anchor began
    request: TraceRequest
    steps: tuple[int, ...] = ()  # indices that the file is to hold


class Profiler:
    """torch.profiler with the activities of the pipeline's device, and anchors for its clock."""

    def __init__(self, request: TraceRequest, device_kind: str) -> None:
        self.request = request
        self.anchors: list[tuple[int, int]] = []
        self.wall_anchors: list[Anchor] = []
        self._device_kind = device_kind
        self.running = False
        self._profile: Any = None

    def start(self) -> None:
        """Start recording. Raises RuntimeError if another profiler is at work."""
        import torch

        if torch.autograd._profiler_enabled():
            message = "another torch.profiler is already recording"
            raise RuntimeError(message)
        profile = torch.profiler.profile(
            activities=_activities(self._device_kind),
            record_shapes=self.request.record_shapes,
            with_stack=self.request.with_stack,
        )
        self._profile = profile
        self.running = True  # before it is true: an interrupt in here must not leave it running
        profile.start()
        self._anchor()

    def stop(self) -> None:
        """Stop recording; RuntimeError if the profiler fails (it is off then)."""
        self.running = False
        self._anchor()
        self._profile.stop()

    def export(self, path: Path) -> None:
        """Write the plain JSON and let go of the events."""
        self._profile.export_chrome_trace(str(path))
        self._profile = None

    def _anchor(self) -> None:
        """Events in the trace whose beginning is known on our clock to the width of the pair."""
        import torch

        for _ in range(ANCHORS_AT_EACH_END):
            scope = torch._C._profiler._RecordFunctionFast(ANCHOR_NAME)
            before = time.perf_counter_ns()
            scope.__enter__()
            after = time.perf_counter_ns()
            scope.__exit__(None, None, None)
            self.anchors.append((before, after))
        self.wall_anchors.append(Anchor(unix_ns=time.time_ns(), host_ns=time.perf_counter_ns()))


def _activities(device_kind: str) -> list[Any]:
    from torch.profiler import ProfilerActivity, supported_activities

    wanted = {"cuda": "CUDA", "xpu": "XPU"}.get(device_kind)
    activities = [ProfilerActivity.CPU]
    if wanted is not None and getattr(ProfilerActivity, wanted) in supported_activities():
        activities.append(getattr(ProfilerActivity, wanted))
    return activities


class TraceWindow(Watcher):
    """Counts steps as the run goes and starts and stops the profiler at the right known calls."""

    def __init__(self, call: ActiveCall, request: TraceRequest) -> None:
        self.warnings: list[str] = []
        self.outside: tuple[OutsideRun, ...] = ()
        self._call = call
        self._request = request
        self.profiler = Profiler(request, (call.clock.device or "cpu").partition(":")[0])
        self._recording_since: int | None = None
        self._finished = False
        self._stepped = False  # scheduler.step was seen since the last forward
        self._ended = 0  # steps that are over
        self._marked = 0  # steps that the user has marked; then only those count
        self._count_forwards = not call.has_scheduler
        call.every_call |= self._count_forwards

    def begin(self) -> None:
        """Before the pipeline call: start now if everything is to be recorded."""
        if self._request.all_stages:
            self._start()

    def before(self, kind: CallKind) -> None:
        """Start before the first forward, stop before the first known call after the last wanted step."""
        if self._finished or self._request.all_stages:
            return
        if kind is CallKind.STEP:
            self._ended = self._marked
            self._marked += 1
            self._before_iteration(kind)
            return
        if self._marked:
            self._beside_marked_steps()
            return
        if kind is CallKind.SCHEDULER_STEP:
            self._stepped = True
            return
        if self._stepped:
            self._ended += 1
            self._stepped = False
        if kind in _ITERATION_STARTS:
            self._before_iteration(kind)
        elif self._recording_since is not None and (self._enough() or (kind in _TERMINAL and self._ended)):
            self._call.pause("profiler stop", self._stop)

    def _before_iteration(self, kind: CallKind) -> None:
        if self._recording_since is None:
            self._call.pause("profiler start", self._start)
        elif self._enough():
            self._call.pause("profiler stop", self._stop)
        # Without a scheduler every forward is a step, which ends where the next one begins.
        self._stepped = self._count_forwards and kind is CallKind.FORWARD

    def _beside_marked_steps(self) -> None:
        """Something begins in a program that marks its steps itself: in one, or after the last wanted one."""
        if self._call.steps_open == 0:
            self._ended = self._marked
            if self._recording_since is not None and self._enough():
                self._call.pause("profiler stop", self._stop)

    def _enough(self) -> bool:
        return 0 <= self._request.steps < self._ended

    def _start(self) -> None:
        try:
            self.profiler.start()
        except RuntimeError as error:
            self.warnings.append(f"no trace: {error}")
            self._finished = True
            return
        self._recording_since = self._call.clock.now_ns()

    def _stop(self) -> None:
        self._finished = True
        if self._recording_since is not None:
            self._call.profiled.append((self._recording_since, self._call.clock.now_ns()))
            self._recording_since = None
        if self.profiler.running:
            try:
                self.profiler.stop()
            except RuntimeError as error:  # must not reach the user's pipeline
                self.warnings.append(f"the profiler could not be stopped cleanly: {error}")

    def end(self) -> None:
        """After the pipeline call, however it ended: stop if still recording."""
        self._stop()

    def export(self) -> RawTrace | None:
        """Write what was recorded to the scratch folder, outside the call; None if there is nothing."""
        if not self._call.profiled:
            return None
        path = self._request.scratch_dir / f"raw-{time.time_ns()}.json"
        begin = time.perf_counter_ns()
        try:
            self._request.scratch_dir.mkdir(parents=True, exist_ok=True)
            self.profiler.export(path)
        except (OSError, RuntimeError) as error:
            self.warnings.append(f"the trace could not be exported: {error}")
            return None
        self.outside = (
            OutsideRun(name=Outside.TRACE_EXPORT, host_start_ns=begin, host_end_ns=time.perf_counter_ns()),
        )
        return RawTrace(path=path, anchors=tuple(self.profiler.anchors), request=self._request)
