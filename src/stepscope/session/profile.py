"""``stepscope.profile``: a pipeline's calls inside a ``with`` block, measured, as frozen results."""

from __future__ import annotations

import sys
import tempfile
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from stepscope.capture.active import ActiveCall
from stepscope.capture.watching import Watch, WatchAll, check_watchable, watched_here
from stepscope.model.errors import UsageError
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.attach import Attachment, OpenCall
from stepscope.session.attach_plan import ATTACHED_DETAILS, AttachOptions, CallPlan, plan_of, settled
from stepscope.session.calls_views import calls_page, calls_text, inline_html
from stepscope.session.commit import commit_here
from stepscope.session.generate_options import ProfileOptions
from stepscope.session.held_call import HeldCall
from stepscope.session.profiled_call import ProfiledCall, save_calls

KEPT_CALLS = 200
"""How many calls a session holds: a server's memory stays bounded. The oldest go first."""

FORKED = (
    "a pipeline was called in a forked process, of which the session in its parent sees nothing: "
    "begin a session in the child, or use stepscope run --children."
)
UNMARKED = "what stepscope.stage and step marked"


class _State(Enum):
    NEW = "has not begun"
    RUNNING = "is observing"
    OVER = "is over"


def profile(
    pipeline: Any = None,
    *,
    steps: int | None = None,
    all_stages: bool = False,
    detail: str = TraceDetail.FULL,
    save_to: str | Path | None = None,
    kept_calls: int = KEPT_CALLS,
) -> ProfileSession:
    """A session that measures every call of ``pipeline`` in its ``with`` block, from any thread.

    ::

        with stepscope.profile(pipe, steps=5) as session:
            pipe("a cat")
        session.report()
        session.save("runs/a")

    Without ``pipeline``: every diffusers pipeline's calls, blocks under ``stepscope.call(name)``, and what
    ``stepscope.stage`` and ``stepscope.step`` mark in this thread outside of both, as one call.

    Args:
        pipeline: the pipeline to observe; it is not kept alive.
        steps: trace so many denoising steps after step 0 of each call with torch.profiler, -1 for all. None
            records times only.
        all_stages: trace whole calls.
        detail: what a trace holds: ``kernels`` device activity and launches, ``ops`` operators too, ``full``
            shapes and Python frames too. The less, the less the traced steps are slowed.
        save_to: write each call into this folder as soon as it ends, so that nothing is lost with the
            process: ``run.json``, ``perf.json`` and the trace. Later calls go to ``<folder>-1``, ...
        kept_calls: how many finished calls are held in memory, the newest.

    Raises:
        UsageError: ``pipeline`` cannot be observed, or a number is out of range.

    """
    if steps is not None and (not _whole(steps) or steps < -1 or steps == 0):
        raise UsageError(
            f"steps is {steps!r}.", remedy="Give a positive whole number, -1 for all, or leave it out."
        )
    if not _whole(kept_calls) or kept_calls < 1:
        raise UsageError(f"kept_calls is {kept_calls!r}.", remedy="Give a whole number above zero.")
    if save_to is not None and not isinstance(save_to, (str, PathLike)):
        raise UsageError(f"save_to is {save_to!r}.", remedy="Give the path of a folder.")
    if pipeline is not None:
        check_watchable(pipeline)
    if detail not in ATTACHED_DETAILS:
        raise UsageError(f"detail is {detail!r}.", remedy=f"Take one of {', '.join(ATTACHED_DETAILS)}.")
    trace = None
    if steps is not None or all_stages:
        trace = ProfileOptions(
            steps=-1 if steps is None else steps, all_stages=all_stages, detail=TraceDetail(detail)
        )
    folder = None if save_to is None else Path(save_to).expanduser()
    return ProfileSession(pipeline, AttachOptions(trace=trace, run_directory=folder), kept_calls)


def _whole(value: Any) -> bool:
    """A whole number, of numpy too; True and False count nothing."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _reference(pipeline: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(pipeline)
    except TypeError:  # slots without __weakref__: then it is kept alive
        return lambda: pipeline


class ProfileSession:
    """What ``profile`` gives: a context manager, or ``start`` and ``stop`` where begin and end lie apart.

    A session observes once; its results stay when it is over. Sessions share nothing: two of them in two
    threads see the calls of their own thread each. Threads without a session of their own (a server's pool)
    belong to the oldest session of the pipeline.
    """

    def __init__(self, pipeline: Any, options: AttachOptions, kept_calls: int) -> None:
        self._pipeline = None if pipeline is None else _reference(pipeline)
        self._options = options
        self._calls: deque[ProfiledCall] = deque(maxlen=kept_calls)
        self._count = 0
        self._problems: deque[str] = deque(maxlen=kept_calls)
        self._state = _State.NEW
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._bare: OpenCall | None = None
        self._attachment: Attachment | None = None
        self._watch: Watch | WatchAll | None = None

    def __enter__(self) -> ProfileSession:
        self._begin(here=True)
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _frames: Any) -> None:
        self._end(error)

    def start(self) -> ProfileSession:
        """Begin to observe, in every thread; ``stop`` may come from another one."""
        self._begin(here=False)
        return self

    def stop(self) -> None:
        """End it. Raises UsageError if it is not observing."""
        if self._state is not _State.RUNNING:
            raise UsageError(f"this session {self._state.value}: there is nothing to stop.")
        self._end(None)

    @property
    def calls(self) -> tuple[ProfiledCall, ...]:
        """The finished calls, oldest first, failed ones included; at most ``kept_calls``, the newest."""
        return tuple(self._calls)

    @property
    def count(self) -> int:
        """How many calls have finished, those that are held no more included."""
        return self._count

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be measured or written, in words."""
        return tuple(self._problems)

    def report(self, stream: TextIO | None = None) -> None:
        """Print what was measured, to standard output unless told otherwise; traces are analysed."""
        (stream or sys.stdout).write(calls_text(self.calls, self._count, self.problems))

    def html(self) -> str:
        """The report as one page that needs no network."""
        return calls_page(self.calls)

    def save(self, directory: str | Path) -> Path:
        """Write every held call below ``directory`` and return the folder: run.json, perf.json, traces.

        A single call lies in the folder itself, several in ``call-0``, ``call-1``, ... ``stepscope report``
        and ``compare`` take the folder. A folder that holds a run already is left alone: ``<directory>-1``.

        Raises:
            UsageError: the session has no call.
            RunFailedError: something cannot be written.

        """
        return save_calls(self.calls, Path(directory).expanduser())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return inline_html(self.html())

    def _begin(self, *, here: bool) -> None:
        if self._state is not _State.NEW:
            raise UsageError(
                f"this session {self._state.value}: it observes once.",
                remedy="Make a new one with stepscope.profile(...).",
            )
        pipeline = None if self._pipeline is None else self._pipeline()
        if self._pipeline is not None and pipeline is None:
            raise UsageError("the pipeline of this session is gone.", remedy="Keep a reference to it.")
        if here and watched_here(pipeline):
            raise UsageError(
                "a session is already observing here.", remedy="Use that one, or end it before this one."
            )
        self._options = settled(self._options)
        plan_of(self._options, 0).places.check()
        self._attachment = Attachment(
            plan=self._plan,
            keep=self._keep,
            problem=self._problems.append,
            forked=lambda: warnings.warn(FORKED, stacklevel=4),
            commit=commit_here(),
        )
        if pipeline is None:
            self._watch = WatchAll(
                self._attachment.handle, block=self._attachment.call, here=here, bare=self._begin_bare
            )
        else:
            self._watch = Watch(pipeline, self._attachment.handle, here=here)
        self._watch.__enter__()
        self._state = _State.RUNNING

    def _end(self, error: BaseException | None) -> None:
        self._state = _State.OVER
        try:
            if self._bare is not None:
                self._bare.end(error)
        finally:
            self._bare = None
            if self._watch is not None:
                self._watch.__exit__()
            if self._attachment is not None:
                self._attachment.close()

    def _begin_bare(self) -> ActiveCall | None:
        """A call for what is marked outside of any, which lasts until the session's end."""
        if self._bare is not None or self._attachment is None:  # begun in another thread
            return None
        self._bare = self._attachment.begin_block(UNMARKED)
        return None if self._bare is None else self._bare.progress.call

    def _plan(self, number: int) -> CallPlan:
        if self._options.trace is None or self._options.run_directory is not None:
            return plan_of(self._options, number)
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="stepscope-")
        trace = replace(self._options.trace, directory=Path(self._scratch.name))
        return plan_of(AttachOptions(trace=trace), number)

    def _keep(self, call: HeldCall) -> None:
        self._calls.append(ProfiledCall(call))
        self._count += 1
