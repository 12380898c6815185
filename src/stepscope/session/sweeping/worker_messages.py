"""What a worker process is told and what it answers, one JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing to do; ``flags`` are those of ``stepscope generate``."""

    do: str  # load | run
    flags: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, and whether the worker can still be used."""

    message: str
    out_of_memory: bool = False
    usable_after: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to one command."""

    gpu_uuid: str | None = None  # of the GPU that the pipeline is on
    failure: Failure | None = None
