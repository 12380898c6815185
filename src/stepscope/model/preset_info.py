"""What is told of a preset before anything is built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetInfo:
    """One architecture that runs without a download."""

    id: str
    twin: str  # the small preset of the same classes; empty where there is none
    pipeline_class: str
    parameters: float | None  # of all components that are known, see ``source``
    twin_parameters: float | None
    source: str  # which components the parameters are of
    steps: int | None
    width: int | None
    height: int | None
    frames: int | None
