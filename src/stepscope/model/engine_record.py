"""What observed engine processes write: small messages that another process reads and puts together.

All times are ``perf_counter_ns`` of the writing process. On Linux that is CLOCK_MONOTONIC, the same in every
process of a machine; ``clock_offset_ns`` (wall clock less that clock) shows whether two processes share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.model.recording import Recording
from stepscope.model.run import Engaged, Environment, Workload

UNKNOWN_VERSION = "unknown"
"""Where no metadata of the engine says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One engine in one process: which hook points were found there."""

    pid: int
    engine: str
    version: str
    tested: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTraceFile:
    """A profiler's export that is still to be cut to its steps."""

    path: str
    anchors: tuple[tuple[int, int], ...]
    asked: int
    all_stages: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTime:
    """Something that took a while around a pipeline call, in the words of ``Outside``."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One pipeline call in a worker."""

    request_id: str
    engine: str
    version: str
    pid: int
    number: int  # of this process
    rank: int
    world_size: int
    clock_offset_ns: int
    recording: Recording
    workload: Workload
    environment: Environment
    engaged: Engaged = field(default_factory=Engaged)
    arrived_ns: int | None = None  # the worker's queue had it
    started_ns: int | None = None  # the worker began with it
    ended_ns: int | None = None
    around: tuple[NamedTime, ...] = ()
    raw_trace: RawTraceFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord:
    """One request as its client saw it: sent to the worker and answered, and the client's own call around.

    Where the queue lies at the client, ``dispatched_ns`` is when the request left it.
    """

    request_id: str
    pid: int
    clock_offset_ns: int
    sent_ns: int
    received_ns: int
    called_ns: int | None = None
    returned_ns: int | None = None
    dispatched_ns: int | None = None
    around: tuple[NamedTime, ...] = ()
    error: str | None = None
