"""One observed pipeline call inside an engine: our clock, window and marks, the engine's stage names."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from stepscope.capture.active import ACTIVE, ActiveCall
from stepscope.capture.clock import DeviceClock
from stepscope.capture.components import Known
from stepscope.capture.devices import clock_for
from stepscope.capture.engines.control import Control
from stepscope.capture.engines.hooks import version_of
from stepscope.capture.engines.spool import Spool, the_spool
from stepscope.capture.environment import read_environment
from stepscope.capture.observer import CallInProgress, Observer, Parts
from stepscope.capture.ranks import rank_here
from stepscope.model.engine_record import CallRecord, RawTraceFile
from stepscope.model.recording import CallKind
from stepscope.model.run import Environment, Workload


class EngineCall(ActiveCall):
    """A call whose stages are told by the engine: what happens inside one belongs to it by name."""

    def __init__(self, clock: DeviceClock, parts: Parts) -> None:
        super().__init__(clock, parts.table, parts.by_class, parts.modules)
        self._stages: list[Known] = []
        self._named: dict[tuple[int, str | None], Known] = {}

    def known(self, instance: Any, attribute: str) -> Known | None:
        """As for any call, but in the stage that the engine is at."""
        known = super().known(instance, attribute)
        return known if known is None or not self._stages else self.here(known)

    def here(self, known: Known) -> Known:
        """The same call in the engine's current stage."""
        stage = self._stages[-1].stage if self._stages else None
        key = (id(known), stage)
        if key not in self._named:
            self._named[key] = replace(known, stage=stage)
        return self._named[key]

    def enter_stage(self, name: str) -> Known | None:
        """The engine begins a stage; None if it could not be marked."""
        known = Known(CallKind.CUSTOM, name, "", stage=name)
        if not self.enter(known, (), {}):
            return None
        self._stages.append(known)
        return known

    def leave_stage(self, known: Known) -> None:
        """It has ended."""
        if known in self._stages:
            self._stages.remove(known)
        self.leave(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an engine says of a request."""

    request_id: str
    workload: Workload


@dataclass(slots=True)
class Observed:
    """A pipeline call in progress."""

    request: Request
    progress: CallInProgress
    device: Any
    began_ns: int = field(default_factory=time.perf_counter_ns)


@dataclass(slots=True)
class Engine:
    """One engine in this process: begins and ends observed calls, and knows its parts from the last call."""

    name: str
    distribution: str
    observer: Observer = field(default_factory=Observer)
    _parts: Parts | None = None
    _signature: tuple[int, ...] = ()
    _environment: Environment | None = None
    _control: Control | None = None

    def begin(self, request: Request, owners: Iterable[tuple[str, Any]], device: Any) -> Observed | None:
        """Start observing the call of ``request``, made of the parts of ``owners``, in this thread.

        None where observation is switched off.
        """
        spool = the_spool()
        if not self._controlled(spool).observes():
            return None
        parts = self._attached(list(owners))
        call = EngineCall(clock_for(device), parts)
        trace = self._controlled(spool).wanted(request.request_id)
        spool.settle()
        spool.running(request.request_id)
        return Observed(
            request=request,
            progress=CallInProgress(call, trace=trace, own_process=False),
            device=device,
        )

    def end(self, observed: Observed, error: BaseException | None) -> CallRecord:
        """End it, however it ended, and make its record."""
        captured = observed.progress.finish(error)
        spool = the_spool()
        spool.running(None)
        raw = captured.raw_trace
        rank, world_size = rank_here()
        return CallRecord(
            request_id=observed.request.request_id,
            engine=self.name,
            version=version_of(self.distribution),
            pid=spool.pid,
            number=spool.next_number(),
            rank=rank,
            world_size=world_size,
            clock_offset_ns=spool.clock_offset_ns,
            recording=captured.recording,
            workload=observed.request.workload,
            environment=self._where(observed.device),
            engaged=captured.engaged,
            raw_trace=None
            if raw is None
            else RawTraceFile(
                path=str(raw.path),
                anchors=raw.anchors,
                asked=raw.request.steps,
                all_stages=raw.request.all_stages,
            ),
        )

    def _attached(self, owners: list[tuple[str, Any]]) -> Parts:
        """Wrap the parts' classes once; a server's requests find the same parts again."""
        signature = tuple(id(part) for _, part in owners)
        if self._parts is None or signature != self._signature:
            self._parts, self._signature = self.observer.attach_parts(owners), signature
        return self._parts

    def _where(self, device: Any) -> Environment:
        if self._environment is None:
            self._environment = read_environment(device)
        return self._environment

    def _controlled(self, spool: Spool) -> Control:
        if self._control is None:
            self._control = Control(spool.folder)
        return self._control


def active() -> EngineCall | None:
    """The engine's call that this thread is in."""
    call = ACTIVE.get()
    return call if isinstance(call, EngineCall) else None
