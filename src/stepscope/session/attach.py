"""Attached to a program that somebody else wrote: each of its calls observed, kept and told, none changed."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import threading
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stepscope.capture.environment import read_environment
from stepscope.capture.observer import CallInProgress, Captured, Observer
from stepscope.capture.ranks import rank_here
from stepscope.capture.watching import PipelineCall
from stepscope.model.run import AS_LOADED, Environment, Warmup, Workload
from stepscope.session.attach_plan import CallPlan
from stepscope.session.destinations import Destinations
from stepscope.session.earlier_calls import Earlier, EarlierCalls
from stepscope.session.held_call import HeldCall
from stepscope.session.interrupts import Interrupts
from stepscope.session.keep import KeptCall, keep_call
from stepscope.session.nsight.request import requested_nvtx
from stepscope.session.observe import CallIdentity, TraceRequest, observed_of, where_it_ended
from stepscope.session.rescue import scratch_parent
from stepscope.workload.describe_block import MOST_INSIDE, workload_of_block
from stepscope.workload.describe_call import describe_call
from stepscope.workload.placement import choose_device


class Attachment:
    """Observes calls of a program. Its faults are told to ``problem`` and never reach the program.

    ``plan`` says for each call number what to do; ``keep`` is given each finished call, failed ones too.
    Calls may come from any thread. Close it to take away everything that was installed.
    """

    def __init__(
        self,
        *,
        plan: Callable[[int], CallPlan],
        keep: Callable[[HeldCall], None],
        problem: Callable[[str], None],
        forked: Callable[[], None] = lambda: None,
        commit: str | None = None,
    ) -> None:
        self._plan, self._keep, self._problem, self._forked = plan, keep, problem, forked
        self._observer = Observer()
        self._numbers = itertools.count()
        self._environments: dict[str, Environment] = {}
        self._commit = commit
        self._earlier = EarlierCalls()
        self._pid = os.getpid()
        self._writing = threading.Lock()  # the files of one call after the other
        self._counting = threading.RLock()  # a signal's handler may count in the midst of counting
        self._open = 0
        self._running: dict[int, OpenCall] = {}
        self._closing = False

    def close(self) -> None:
        """Take away everything that was installed, as soon as the calls that are on their way have ended."""
        with self._counting:
            self._closing = True
            idle = self._open == 0
        if idle:
            self._observer.close()

    def _count(self, change: int) -> None:
        with self._counting:
            self._open += change
            last = self._closing and self._open == 0
        if last:
            self._observer.close()

    def handle(self, pipeline: Any, call: PipelineCall) -> Any:
        """Make the call, observed; what it returns or raises is the caller's."""
        begun = self._begun(pipeline, lambda: describe_call(pipeline, call.args, call.kwargs))
        if begun is None:
            return call()
        try:
            result = call()
        except BaseException as error:
            begun.end(error)
            raise
        begun.end(None, result)
        return result

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Observe a block of code that is no pipeline's call; pipelines called in it are part of it."""
        begun = self.begin_block(name)
        try:
            yield
        except BaseException as error:
            if begun is not None:
                begun.end(error)
            raise
        if begun is not None:
            begun.end(None)

    def begin_block(self, name: str) -> OpenCall | None:
        """As ``call``, for a block whose end is somewhere else."""
        workload = Workload(model=name, pipeline_class="", load_format=AS_LOADED, block=name)
        begun = self._begun(None, lambda: workload)
        if begun is not None:
            begun.progress.call.adopt = self._adopting(begun)
        return begun

    def _adopting(self, begun: OpenCall) -> Callable[..., None]:
        def adopt(pipeline: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                parts = self._observer.attach(pipeline)
                if len(begun.inside) < MOST_INSIDE:
                    begun.inside.append(describe_call(pipeline, args, kwargs))
            except Exception as error:  # the program goes on
                self._problem(f"a pipeline could not be observed: {_said(error)}")
                return
            begun.progress.call.take_in(parts.table, parts.by_class)

        return adopt

    def _begun(self, subject: Any, workload: Callable[[], Workload]) -> OpenCall | None:
        """Begin to observe a call; None where that is not possible, which is told."""
        if os.getpid() != self._pid:
            self._forked()
            return None
        scratch = ExitStack()
        self._count(1)
        try:
            number = next(self._numbers)
            if subject is None:  # a block of code, on the device that such code would use
                subject = types.SimpleNamespace(device=choose_device(None))
            plan = self._plan(number)
            described, earlier = workload(), self._earlier.of(subject)
            trace = _trace_request(plan, scratch)
            begun = OpenCall(
                attachment=self,
                number=number,
                plan=plan,
                workload=described,
                earlier=earlier,
                scratch=scratch,
                progress=self._observer.begin(subject, trace=trace, nvtx=requested_nvtx()),
            )
        except KeyboardInterrupt:
            scratch.close()
            self._count(-1)
            raise
        except Exception as error:  # the program goes on without us
            scratch.close()
            self._count(-1)
            self._problem(f"a call could not be observed: {_said(error)}")
            return None
        self._running[number] = begun
        return begun

    def end(self, call: OpenCall, error: BaseException | None, result: Any) -> None:
        """Freeze and keep a call that has ended, however it ended. Signals wait until it is written.

        Raises what the first signal that waited raises, as KeyboardInterrupt.
        """
        interrupts = Interrupts()
        with interrupts.held_back():
            self._end(call, error, result)
        if (waiting := interrupts.pending()) is not None:
            raise waiting

    def cut_off(self, error: BaseException) -> None:
        """The process ends here: keep every call that is on its way as far as it has come."""
        for call in list(self._running.values()):
            if call.thread != threading.get_ident():
                call.progress.leave_the_profiler()
            with call.scratch:
                self._end(call, error, None)

    def _end(self, call: OpenCall, error: BaseException | None, result: Any) -> None:
        if self._running.pop(call.number, None) is None:
            return  # it was cut off
        try:
            captured = call.progress.finish(error, result)
            make = functools.partial(_kept, self._ended(call, captured), captured, call.plan.places)
            call.earlier.note(call.workload.steps or 0, captured.unsteady)
            if call.plan.writes:
                self._write(make)
            else:
                self._keep(HeldCall(make))
        except Exception as fault:
            self._problem(f"a call was observed but could not be kept: {_said(fault)}")
        finally:
            self._count(-1)

    def _write(self, make: Callable[[], KeptCall]) -> None:
        with self._writing:
            kept = make()
        for failure in kept.failures:
            self._problem(str(failure) or "interrupted while a file was written")
        self._keep(HeldCall(lambda: kept))

    def _ended(self, call: OpenCall, captured: Captured) -> _Ended:
        """What is to be said of the call beside what was captured."""
        rank, world_size = rank_here()
        environment = self._environment(captured.recording.device)
        return _Ended(
            identity=CallIdentity(
                str(uuid.uuid4()), call.number, workload_of_block(call.workload, call.inside), environment
            ),
            rank=rank,
            world_size=world_size,
            warmup=call.earlier.warmup(),
        )

    def _environment(self, device: str | None) -> Environment:
        """Read once a device: it asks NVML and the installed packages."""
        name = device or "cpu"
        if name not in self._environments:
            self._environments[name] = replace(read_environment(name), commit=self._commit)
        return self._environments[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """One observed call between its beginning and its end."""

    attachment: Attachment
    number: int
    plan: CallPlan
    workload: Workload
    earlier: Earlier
    scratch: ExitStack
    progress: CallInProgress
    thread: int = field(default_factory=threading.get_ident)
    inside: list[Workload] = field(default_factory=list)  # of pipelines called in a block

    def end(self, error: BaseException | None, result: Any = None) -> None:
        """It has ended; nothing of ours is raised, but a signal that came meanwhile may be."""
        with self.scratch:
            self.attachment.end(self, error, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """Which call it was, where, and what came before."""

    identity: CallIdentity
    rank: int
    world_size: int
    warmup: Warmup


def _kept(ended: _Ended, captured: Captured, places: Destinations) -> KeptCall:
    """Make the run of what was captured, and write what is to be written."""
    observed = observed_of(captured, ended.identity)
    run = replace(
        observed.run,
        rank=ended.rank,
        world_size=ended.world_size,
        warmup=ended.warmup,
        incomplete_reason=where_it_ended(observed.run),
    )
    return keep_call(replace(observed, run=run), places)


def _trace_request(plan: CallPlan, scratch: ExitStack) -> TraceRequest | None:
    """The trace as planned, with a folder for the raw export beside its place, on a disk that takes it."""
    if plan.trace is None or plan.places.traces is None:
        return None
    plan.places.traces.mkdir(parents=True, exist_ok=True)
    parent = scratch_parent(plan.places.traces)
    folder = scratch.enter_context(tempfile.TemporaryDirectory(prefix=".stepscope-", dir=parent))
    return TraceRequest(
        steps=plan.trace.steps,
        all_stages=plan.trace.all_stages,
        detail=plan.trace.detail,
        scratch_dir=Path(folder),
    )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
