"""NVTX ranges around an observed call: stage > denoising_step_i > forward and scheduler_step.

They are pushed and popped as the call goes, so a range's end is known only when the next call begins: a step
lasts until the next step's first forward, and a stage until the next stage's first call. The same boundaries
open and close a capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from stepscope.capture.active import ActiveCall
from stepscope.capture.components import Known
from stepscope.model.nsight import Capture
from stepscope.model.recording import STAGE_OF, CallKind
from stepscope.model.vocabulary import FORWARD_SPAN_PREFIX, STEP_SPAN_PREFIX

SCHEDULER_RANGE = "scheduler_step"
_WITHOUT_RANGE = frozenset({CallKind.PIPELINE, CallKind.PAUSE, CallKind.TRANSFER})
_ITERATION_STARTS = frozenset({CallKind.FORWARD, CallKind.CONDITIONER})


class Marker(Protocol):
    """Pushes and pops ranges; the shipped one is ``marker.NvtxMarker``."""

    def push(self, name: str) -> None:
        """Open a range inside the last opened one."""

    def pop(self) -> None:
        """Close the last opened range."""


class Gate(Protocol):
    """Opens and closes the capture of the profiler that watches this process, once."""

    @property
    def spent(self) -> bool:
        """Whether it was opened before: one process leaves one capture."""

    def open(self) -> None:
        """Begin capturing."""

    def close(self) -> None:
        """End it."""


class NvtxRanges:
    """The ranges of one call. ``before`` and ``after`` are told of every known call, as brackets."""

    def __init__(
        self, call: ActiveCall, marker: Marker, capture: Capture | None = None, gate: Gate | None = None
    ) -> None:
        self.label = ""  # what the pipeline calls the forwards it makes now: cond, uncond
        self._call = call
        self._marker = marker
        self._capture = capture
        self._gate = gate
        self._gate_open = False
        self._open_since = 0
        self._gate_done = gate is None or gate.spent
        self._open: list[str] = []  # names of open ranges, outermost first
        self._calls: list[tuple[Known, int]] = []  # open known calls and how many ranges each has opened
        self._stage: str | None = None
        self._step: int | None = None  # the open one
        self._next_step = 0
        self._stepped = False  # the scheduler has stepped since the last forward
        self._forwards_are_steps = not call.has_scheduler

    def begin(self) -> None:
        """Before the pipeline call."""
        if self._captures_whole_call:
            self._open_gate()

    def before(self, known: Known) -> None:
        """A known call is about to begin."""
        if known.kind in _WITHOUT_RANGE:
            return
        stage = known.stage or STAGE_OF.get(known.kind)
        opened = 0
        if not self._calls:
            self._advance(known.kind, None if stage is None else str(stage))
        elif stage is not None and str(stage) != self._innermost_stage:
            self._push(str(stage))
            opened += 1
        self._push(self._name(known))
        self._calls.append((known, opened + 1))

    def after(self, known: Known) -> None:
        """It has ended, however it ended."""
        if not self._calls or self._calls[-1][0] is not known:
            return
        for _ in range(self._calls.pop()[1]):
            self._pop()
        if known.kind is CallKind.SCHEDULER_STEP or (
            self._forwards_are_steps and known.kind is CallKind.FORWARD
        ):
            self._stepped = True

    def close(self) -> None:
        """After the pipeline call, however it ended: close every range and the capture."""
        self._calls.clear()
        while self._open:
            self._pop()
        self._stage = self._step = None
        self._close_gate()

    @contextmanager
    def labelled(self, name: str) -> Iterator[None]:
        """Forwards in this block carry the pipeline's own name for them."""
        before, self.label = self.label, name
        try:
            yield
        finally:
            self.label = before

    @property
    def _captures_whole_call(self) -> bool:
        return self._capture is not None and self._capture.steps is None and self._capture.stage is None

    @property
    def _innermost_stage(self) -> str | None:
        known = self._calls[-1][0]
        stage = known.stage or STAGE_OF.get(known.kind)
        return None if stage is None else str(stage)

    def _name(self, known: Known) -> str:
        match known.kind:
            case CallKind.FORWARD:
                label = f"_{self.label}" if self.label else ""
                return f"{FORWARD_SPAN_PREFIX}{known.component}{label}"
            case CallKind.SCHEDULER_STEP:
                return SCHEDULER_RANGE
            case _:
                return f"{known.component}.{known.method}" if known.method else known.component

    def _advance(self, kind: CallKind, stage: str | None) -> None:
        """Close what ends where an outermost call begins, open what begins there."""
        new_stage = stage is not None and stage != self._stage
        new_step = kind in _ITERATION_STARTS and (self._step is None or self._stepped)
        if self._step is not None and (new_stage or new_step):
            self._end_step()
        if new_stage and self._stage is not None:
            self._pop()
        if new_stage or new_step:
            self._at_boundary(stage, starts_step=new_step)
        if new_stage and stage is not None:
            self._stage = stage
            self._push(stage)
        if new_step:
            self._step = self._next_step
            self._push(f"{STEP_SPAN_PREFIX}{self._step}")
        self._stepped = False if kind in _ITERATION_STARTS else self._stepped

    def _end_step(self) -> None:
        self._pop()
        self._step = None
        if self._stepped:
            self._next_step += 1
            self._stepped = False

    def _at_boundary(self, stage: str | None, *, starts_step: bool) -> None:
        """Open or close the capture where a stage or a step ends and another begins."""
        if self._capture is None or self._gate_done or self._captures_whole_call:
            return
        if self._capture.steps is not None:
            wanted = starts_step and self._next_step in self._capture.steps
        else:
            wanted = (stage or self._stage) == self._capture.stage
        if wanted is not self._gate_open and self._may_wait():
            # A range that began before the capture would not be in it: cut it here.
            cut = self._open
            for _ in range(len(cut)):
                self._marker.pop()
            what = "nsys capture start" if wanted else "nsys capture stop"
            self._call.pause(what, self._open_gate if wanted else self._close_gate)
            for name in cut:
                self._marker.push(name)

    def _may_wait(self) -> bool:
        """Whether the device may be waited for: not while a CUDA graph is being captured."""
        probe = self._call.clock.mark()
        if probe is not None:
            self._call.clock.release([probe])
        return probe is not None

    def _open_gate(self) -> None:
        if self._gate is not None and not self._gate_done:
            self._gate_open = True
            self._gate.open()
            self._open_since = self._call.clock.now_ns()

    def _close_gate(self) -> None:
        """The device is drained by who calls this, so that no work of the window is lost."""
        if self._gate is not None and self._gate_open:
            self._gate_open = False
            self._gate_done = True
            self._call.profiled.append((self._open_since, self._call.clock.now_ns()))
            self._gate.close()

    def _push(self, name: str) -> None:
        self._open.append(name)
        self._marker.push(name)

    def _pop(self) -> None:
        if self._open:
            self._open.pop()
            self._marker.pop()
