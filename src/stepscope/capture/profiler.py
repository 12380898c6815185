"""torch.profiler at one of the details, started and stopped or only switched, with anchors for its clock."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepscope.capture.held_up import holding_up_others
from stepscope.capture.one_profiler import Recording, foreign_records, warming_up
from stepscope.capture.tracing import Switching, TraceRequest
from stepscope.model.run import Anchor
from stepscope.model.vocabulary import TraceDetail

ANCHOR_NAME = "stepscope_anchor"
ANCHORS_AT_EACH_END = 3
"""The first one warms the path; readers take the narrowest pair."""

LEAN = frozenset({TraceDetail.KERNELS, TraceDetail.SOURCE})
"""Details of which a device's activity tells all that is written; on a CPU operators are the work."""


ATTACHED = (
    "a profiler has been at work in this process before: until CUPTI is torn down (TEARDOWN_CUPTI=1) each "
    "launch costs the host some 2 µs more"
)
"""Measured on an H200 with torch 2.11: benchmarks/gpu_launches.py, docs/measurements.md."""

_started_on: set[str] = set()  # CUPTI is attached to a process, so this is a fact about the process


def still_attached(device_kind: str) -> tuple[str, ...]:
    """What to say of a call that is not traced, where one before it was and CUPTI has stayed."""
    stays = device_kind == "cuda" and os.environ.get("TEARDOWN_CUPTI") != "1"
    return (ATTACHED,) if stays and device_kind in _started_on else ()


class Profiler:
    """torch.profiler with the activities of the pipeline's device, and anchors for its clock."""

    def __init__(
        self, request: TraceRequest, device_kind: str, make_way: Callable[[], None] = lambda: None
    ) -> None:
        self.request = request
        self._make_way = make_way
        self._recording: Recording | None = None
        self._other_warms_up = warming_up()
        self.anchors: list[tuple[int, int]] = []
        self.wall_anchors: list[Anchor] = []
        self.running = False
        self._device_kind = device_kind
        self._profile: Any = None
        self._activities: list[Any] = []

    @property
    def lean(self) -> bool:
        """Whether operators are left out: only launches, device activity and named ranges are recorded."""
        has_device = self._device_kind in _DEVICE_ACTIVITIES
        return has_device and self.request.detail in LEAN and not self.request.mapping

    @property
    def switching(self) -> Switching:
        """How this one is kept to the window."""
        if self.request.all_stages or self.request.mapping:
            return Switching.WHOLE
        if self.request.switching is not None:
            return self.request.switching
        toggles = self.lean and not self._other_warms_up and can_toggle(self._device_kind)
        return Switching.TOGGLE if toggles else Switching.PAUSE

    def start(self, *, collecting: bool = True) -> None:
        """Start recording. Raises RuntimeError if another profiler is at work.

        When somebody else's is about to start, ``make_way`` is called, which is to stop this one.
        """
        import torch

        self._recording = recording = Recording(self._make_way)
        recording.take(other_warms_up=self._other_warms_up)
        try:
            with holding_up_others():
                self._begin(torch.profiler.profile, collecting=collecting)
        except BaseException:
            if not self.running:
                recording.give_back()
            raise
        recording.starting = False

    def _begin(self, make: Callable[..., Any], *, collecting: bool) -> None:
        self._activities = _activities(self._device_kind)
        mapping, full = self.request.mapping, self.request.detail is TraceDetail.FULL
        profile = make(
            activities=self._activities,
            record_shapes=mapping or full,
            with_stack=full and not mapping,
        )
        self._profile = profile
        _started_on.add(self._device_kind)
        self.running = True  # before it is true: an interrupt in here must not leave it running
        if self.lean:
            start_without_operators(profile)
        else:
            profile.start()
        if collecting:
            self._anchor()
        else:
            self._toggle(on=False)

    def switch_on(self) -> None:
        """Begin to collect what ``start(collecting=False)`` has made ready for."""
        self._toggle(on=True)
        self._anchor()

    def switch_off(self) -> None:
        """Collect no more; what was collected is processed when the profiler stops."""
        self._anchor()
        self._toggle(on=False)

    def stop(self, *, collecting: bool = True) -> None:
        """Stop recording; RuntimeError if the profiler fails (it is off then)."""
        self.running = False
        try:
            if collecting:
                self._anchor()
            else:
                self._keep_what_was_collected()
            with holding_up_others():
                self._profile.stop()
        except BaseException:
            _finish_stopping(self._profile)
            raise
        finally:
            if self._recording is not None:
                self._recording.give_back()

    @property
    def wanted(self) -> bool:
        """Whether somebody else's profiler waits in another thread for this one to stop."""
        return self._recording is not None and self._recording.wanted

    def _keep_what_was_collected(self) -> None:
        """Make one more record, so that those from before the switch are processed with it.

        Switching off completes the device's buffers, and Kineto, when it stops without an open one, takes
        none at all (libkineto, CuptiActivityApi::activityBuffers; seen with torch 2.11 on an H200).
        """
        import torch

        self._toggle(on=True)
        if self._device_kind in _DEVICE_ACTIVITIES:
            getattr(torch, self._device_kind).synchronize()

    def events(self) -> list[Any]:
        """What was recorded, as torch's own events; only after ``stop``."""
        return list(self._profile.profiler.kineto_results.events())

    def export(self, path: Path) -> None:
        """Write the plain JSON and let go of the events. RuntimeError where there are none."""
        if getattr(self._profile.profiler, "kineto_results", None) is None:
            raise RuntimeError("the profiler was interrupted while it stopped")
        with holding_up_others():
            self._profile.export_chrome_trace(str(path))
        self._profile = None

    def _toggle(self, *, on: bool) -> None:
        """All activities together: torch warns on standard error where only one of them is switched."""
        import torch

        torch._C._autograd._toggle_collection_dynamic(on, set(self._activities))

    def _anchor(self) -> None:
        """Events in the trace whose beginning is known on our clock to the width of the pair."""
        for scope in _anchor_scopes(lean=self.lean):
            before = time.perf_counter_ns()
            scope.__enter__()
            after = time.perf_counter_ns()
            scope.__exit__(None, None, None)
            self.anchors.append((before, after))
        self.wall_anchors.append(Anchor(unix_ns=time.time_ns(), host_ns=time.perf_counter_ns()))


def can_toggle(device_kind: str) -> bool:
    """Whether collection can be switched on a device while a profiler is at work: tried, once in a process.

    Not every torch can, and some lose everything that was collected; then the profiler stops in a pause.
    """
    return not foreign_records() and _tried_to_toggle(device_kind)


@functools.cache
def _tried_to_toggle(device_kind: str) -> bool:
    import torch

    if not hasattr(torch._C._autograd, "_toggle_collection_dynamic"):
        return False
    trial = Profiler(TraceRequest(steps=1, scratch_dir=Path(), detail=TraceDetail.KERNELS), device_kind)
    try:
        names = _names_of_a_trial(trial, torch.zeros(8, device=device_kind))
    except RuntimeError:
        return False
    finally:
        if trial.running:
            with suppress(RuntimeError):
                trial.stop()
    return "cos_kernel" in names and "sin_kernel" not in names and "exp_kernel" not in names


def _names_of_a_trial(trial: Profiler, tensor: Any) -> str:
    """Names of the device's work that is recorded of a sine, a cosine and an exponential: the cosine's."""
    trial.start(collecting=False)
    tensor.sin()
    trial.switch_on()
    tensor.cos()
    trial.switch_off()
    tensor.exp()
    trial.stop(collecting=False)
    return " ".join(event.name() for event in trial.events() if event.device_type().name != "CPU")


def start_without_operators(profile: Any) -> None:
    """Start a ``torch.profiler.profile`` that records named ranges and the device, and no operator.

    Operators cost their callbacks at every one of them. torch's own start has no argument for that, the call
    below it has; where a version lacks it, operators are recorded too.
    """
    import torch
    from torch._C._profiler import RecordScope

    profile.prepare_trace()
    inner, plain_start = profile.profiler, profile.profiler._start_trace

    def start() -> None:
        inner.entered = True
        torch.autograd.profiler._run_on_profiler_start()
        torch._C._autograd._enable_profiler(
            inner.config(create_trace_id=False), inner.kineto_activities, {RecordScope.USER_SCOPE}
        )

    try:
        inner._start_trace = start
        profile.start_trace()
    except (AttributeError, TypeError):
        inner._start_trace = plain_start
        profile.start_trace()


def _finish_stopping(profile: Any) -> None:
    """An interrupt came while torch stopped its profiler: it must not stay on, and what it has is kept.

    Where the interrupt fell between torch's own call and the name for its result, the result is lost.
    """
    from torch import autograd

    enabled = getattr(autograd, "_profiler_enabled", None)
    if enabled is not None and enabled():
        profile.profiler.kineto_results = autograd._disable_profiler()
    stopped = getattr(autograd.profiler, "_run_on_profiler_stop", None)
    if stopped is not None:
        stopped()


def _anchor_scopes(*, lean: bool) -> Iterable[Any]:
    import torch

    for _ in range(ANCHORS_AT_EACH_END):
        if lean:
            yield torch.profiler.record_function(ANCHOR_NAME)
        else:
            yield torch._C._profiler._RecordFunctionFast(ANCHOR_NAME)


_DEVICE_ACTIVITIES = {"cuda": "CUDA", "xpu": "XPU"}


def _activities(device_kind: str) -> list[Any]:
    from torch.profiler import ProfilerActivity, supported_activities

    wanted = _DEVICE_ACTIVITIES.get(device_kind)
    activities = [ProfilerActivity.CPU]
    if wanted is not None and getattr(ProfilerActivity, wanted) in supported_activities():
        activities.append(getattr(ProfilerActivity, wanted))
    return activities
