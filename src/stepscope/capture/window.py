"""The trace window: which steps are recorded, without knowing how many there will be.

The profiler records from before the first denoiser forward until the first known call after the last wanted
step; both are reached in a pause, which is in no stage, step or total. The export is cut to the exact steps
later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stepscope.capture.active import ActiveCall, Watcher
from stepscope.capture.line_watch import LineWatch
from stepscope.capture.profiler import Profiler
from stepscope.capture.tracing import RawTrace, Switching, TraceRequest
from stepscope.model.recording import CallKind
from stepscope.model.run import OutsideRun
from stepscope.model.source_map import LineLog
from stepscope.model.vocabulary import Outside

__all__ = ["RawTrace", "Switching", "TraceRequest", "TraceWindow"]

ALL_STEPS = -1
NOT_ALL = "steps after the first decoding are not traced: this profiler cannot be switched on again"
_TERMINAL = frozenset({CallKind.DECODING, CallKind.POSTPROCESSING})
_ITERATION_STARTS = frozenset({CallKind.FORWARD, CallKind.CONDITIONER})


class TraceWindow(Watcher):
    """Counts steps as the run goes and starts and stops the profiler at the right known calls."""

    def __init__(self, call: ActiveCall, request: TraceRequest) -> None:
        self.warnings: list[str] = []
        self.outside: tuple[OutsideRun, ...] = ()
        self._call = call
        self._request = request
        self.profiler = Profiler(request, (call.clock.device or "cpu").partition(":")[0], self._make_way)
        self._recording_since: int | None = None
        self._finished = False
        self._stepped = False  # scheduler.step was seen since the last forward
        self._ended = 0  # steps that are over
        self._marked = 0  # steps that the user has marked; then only those count
        self._count_forwards = not call.has_scheduler
        self._switching = self.profiler.switching
        self._watch = LineWatch(call.modules) if request.mapping else None
        self._lines: LineLog | None = None
        call.every_call |= self._count_forwards

    def begin(self) -> None:
        """Before the pipeline call: start now what is not to be started in it."""
        if self._switching is Switching.TOGGLE:
            self._guarded_start(lambda: self.profiler.start(collecting=False))
        elif self._switching is Switching.WHOLE:
            self._start()

    def before(self, kind: CallKind) -> None:
        """Start before the first forward, stop before the first known call after the last wanted step."""
        if self.profiler.wanted and self.profiler.running:
            self._make_way()
        if self._finished or self._switching is Switching.WHOLE:
            self._say_what_is_missed(kind)
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
            self._at_the_end_of_a_loop()

    def _at_the_end_of_a_loop(self) -> None:
        """Enough steps, or a decoding before there are: of the result, or of a preview in the loop."""
        if self._enough():
            self._call.pause("profiler stop", self._stop)
        elif self._goes_on():
            self._call.pause("profiler stop", self._suspend)
        elif not self._loop_goes_on():
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

    def _goes_on(self) -> bool:
        """Whether steps after this decoding are wanted and can be recorded: video in chunks, previews."""
        wanted = self._request.steps == ALL_STEPS or self._loop_goes_on()
        return wanted and self._switching is Switching.TOGGLE

    def _loop_goes_on(self) -> bool:
        """Whether a scheduler has timesteps left."""
        return any(self._ended < timestep_count(scheduler) for scheduler in self._call.schedulers)

    def _say_what_is_missed(self, kind: CallKind) -> None:
        missed = self._request.steps == ALL_STEPS and self._switching is Switching.PAUSE
        if missed and kind in _ITERATION_STARTS and self._call.profiled and NOT_ALL not in self.warnings:
            self.warnings.append(NOT_ALL)

    def _enough(self) -> bool:
        return 0 <= self._request.steps < self._ended

    def _start(self) -> None:
        toggles = self._switching is Switching.TOGGLE
        if self._guarded_start(self.profiler.switch_on if toggles else self.profiler.start):
            self._recording_since = self._call.clock.now_ns()

    def _guarded_start(self, start: Callable[[], None]) -> bool:
        try:
            start()
            if self._watch is not None:
                self._watch.start()
        except RuntimeError as error:
            self.warnings.append(f"no trace: {error}")
            self._finished = True
            return False
        return True

    def _stop(self) -> None:
        """Stop recording for good; the profiler itself goes on where it is only switched."""
        self._finished = True
        self._suspend()

    def _suspend(self) -> None:
        if self._recording_since is None:
            return
        if self._watch is not None:
            self._lines = self._watch.stop()
        self._call.profiled.append((self._recording_since, self._call.clock.now_ns()))
        self._recording_since = None
        toggles = self._switching is Switching.TOGGLE
        self._guarded_stop(self.profiler.switch_off if toggles else self.profiler.stop)

    def _guarded_stop(self, stop: Callable[[], None]) -> None:
        try:
            stop()
        except RuntimeError as error:  # must not reach the user's pipeline
            self.warnings.append(f"the profiler could not be stopped cleanly: {error}")

    def _make_way(self) -> None:
        """Somebody else's profiler begins, which comes first: keep the whole steps that ours has seen."""
        cut = not self._finished
        whole = 0 if self._switching is Switching.WHOLE else self._ended + self._stepped
        self._call.pause("profiler stop", self.end)
        if cut and whole:
            self.warnings.append(f"another torch.profiler began after {whole} steps: the trace ends there")
            self._request = replace(self._request, steps=max(whole - 1, 1))
        elif cut:
            self.warnings.append("no trace: another torch.profiler began before there was a whole one")
            self._call.profiled.clear()

    def end(self) -> None:
        """After the pipeline call, however it ended: stop what is still at work."""
        self._stop()
        if self.profiler.running:
            self._guarded_stop(lambda: self.profiler.stop(collecting=self._switching is not Switching.TOGGLE))

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
        return RawTrace(
            path=path, anchors=tuple(self.profiler.anchors), request=self._request, lines=self._lines
        )


def timestep_count(scheduler: Any) -> int:
    """How many timesteps a scheduler was set to; 0 where it was not, or does not say."""
    if getattr(scheduler, "num_inference_steps", None) is None:
        return 0
    try:
        return len(scheduler.timesteps)
    except (AttributeError, TypeError):
        return 0
