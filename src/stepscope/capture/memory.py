"""The device allocator's counters, read where one stage ends and the next begins."""

from __future__ import annotations

from typing import Any

from stepscope.capture.active import ActiveCall, Watcher
from stepscope.model.recording import STAGE_OF, CallKind, TimedReading
from stepscope.model.run import MemoryReading
from stepscope.model.vocabulary import Stage

NO_ALLOCATOR = "there is no device allocator to read on {device}"
PEAKS_NOT_RESET = "memory peaks count from before this call: the process is not ours, so they were not reset"


def read_memory(device: str | None) -> MemoryReading | None:
    """Bytes now and at the peak since the last reset; None where torch has no allocator for the device."""
    import torch

    kind, _, index = (device or "cpu").partition(":")
    if kind == "mps":
        # Metal keeps no peaks: the readings' own maximum is taken when they are frozen.
        allocated = torch.mps.current_allocated_memory()
        reserved = torch.mps.driver_allocated_memory()
        return MemoryReading(
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            peak_allocated_bytes=allocated,
            peak_reserved_bytes=reserved,
        )
    if kind not in {"cuda", "xpu"}:
        return None
    stats: dict[str, Any] = getattr(torch, kind).memory_stats_as_nested_dict(int(index or 0))
    if not stats:  # nothing has been allocated in this process yet
        return None
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return MemoryReading(
        allocated_bytes=allocated["current"],
        reserved_bytes=reserved["current"],
        peak_allocated_bytes=allocated["peak"],
        peak_reserved_bytes=reserved["peak"],
    )


def reset_peaks(device: str | None) -> None:
    """Let peaks count from now; only in a process of our own."""
    import torch

    kind, _, index = (device or "cpu").partition(":")
    if kind in {"cuda", "xpu"}:
        getattr(torch, kind).reset_peak_memory_stats(int(index or 0))


class MemoryWatch(Watcher):
    """Reads the allocator before the first known call of another stage. A read takes some 20 microseconds."""

    def __init__(self, call: ActiveCall, *, own_process: bool) -> None:
        self._call = call
        self._device = call.clock.device
        self._stage: Stage | None = None
        self.readings: list[TimedReading] = []
        if own_process:
            reset_peaks(self._device)
        self.before_forward = read_memory(self._device)
        self.after_forward: MemoryReading | None = None
        self.reason: str | None = None
        self.warnings: tuple[str, ...] = ()
        if self.before_forward is None:
            self.reason = NO_ALLOCATOR.format(device=self._device or "the CPU")
        else:
            call.watchers.append(self)
            self.warnings = () if own_process else (PEAKS_NOT_RESET,)

    def before(self, kind: CallKind) -> None:
        """Called where the kind of call changes; a reading is due only where the stage does."""
        stage = STAGE_OF.get(kind)
        if stage is not self._stage and stage is not None:
            if self._stage is not None:
                self._read()
            self._stage = stage

    def end(self) -> None:
        """After the call: the last stage's reading, and the run's."""
        if self.reason is None:
            self._read()
            self.after_forward = self.readings[-1].reading

    def _read(self) -> None:
        reading = read_memory(self._device)
        if reading is not None:
            self.readings.append(TimedReading(host_ns=self._call.clock.now_ns(), reading=reading))
