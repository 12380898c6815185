"""What a machine can do, check by check."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.vocabulary import Word


class State(Word):
    """How a check went."""

    OK = "ok"
    LIMITED = "limited"  # works, but not all of it
    MISSING = "missing"  # not there; the rest works without
    UNKNOWN = "unknown"  # could not be tried here


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. ``remedy``: how to get what is missing."""

    id: str
    title: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All checks, in the order in which they are told."""

    schema_version: int
    checks: tuple[Check, ...]


HEALTH_SCHEMA_VERSION = 1
"""1 (2026-11): first."""
