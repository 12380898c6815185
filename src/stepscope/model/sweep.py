"""A sweep: the points of a grid, and one row for each point that has been measured."""

from __future__ import annotations

from dataclasses import dataclass, field

SWEEP_SCHEMA_VERSION = 1
"""1 (2026-11): first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One combination of the grid. What the grid does not vary is None: the call's own value."""

    prompt: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    frames: int | None = None
    variant: str = ""  # further flags

    @property
    def label(self) -> str:
        """The combination in a few words."""
        words = [
            f"{self.width}x{self.height}" if self.width is not None else "",
            _counted(self.steps, "step"),
            _counted(self.frames, "frame"),
            self.variant,
        ]
        return ", ".join(word for word in words if word) or "the call as it is"


def _counted(count: int | None, what: str) -> str:
    return "" if count is None else f"{count} {what}" if count == 1 else f"{count} {what}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """What came of one point. ``status``: ok, failed or out_of_memory."""

    id: str  # the same for the same flags of generate, whatever grid they come from
    point: SweepPoint
    status: str
    error: str = ""
    attempts: int = 1
    runs_ms: tuple[
        float, ...
    ] = ()  # end to end, each measured run; the first use of a shape is not among them
    total_ms: float | None = None  # their median
    first_use_ms: float | None = None  # what the first call of this shape took beyond the median
    first_in_process: bool = False  # that first call was also the first of its process
    stages_ms: dict[str, float] = field(default_factory=dict)  # medians by name
    step_ms: float | None = None  # median of the runs' median steps
    peak_memory_bytes: int | None = None
    width: int | None = None  # as measured, whatever the grid left open
    height: int | None = None
    frames: int | None = None
    steps: int | None = None
    device: str = ""
    untrusted: tuple[str, ...] = ()
    random_weights: bool = False
    dumps: tuple[str, ...] = ()
    finished_unix_ns: int = 0
    schema_version: int = SWEEP_SCHEMA_VERSION
