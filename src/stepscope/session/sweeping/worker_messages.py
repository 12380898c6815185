"""What a worker process is told and what it answers, one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing to do; ``flags`` are those of ``stepscope generate``."""

    do: str  # load | check | run
    flags: dict[str, Any] = field(default_factory=dict)


def encoded(command: Command) -> bytes:
    """A command as a line; escapes keep the bytes of a path or prompt that are no UTF-8."""
    return json.dumps({"do": command.do, "flags": command.flags}, default=str).encode("ascii") + b"\n"


def decoded(line: bytes) -> Command:
    """The command in a line."""
    return Command(**json.loads(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, and whether the worker can still be used."""

    message: str
    out_of_memory: bool = False
    usable_after: bool = False
    refused: bool = False  # by us, for what was asked: trying again is of no use


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to one command."""

    gpu_uuid: str | None = None  # of the GPU that the pipeline is on
    failure: Failure | None = None
