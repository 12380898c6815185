"""A whole process observed, from before its first import of torch to its end."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepscope.capture.watching import PipelineCall, WatchAll
from stepscope.session.attach_plan import AttachOptions, plan_of, process_name, settled
from stepscope.session.commit import commit_here

if TYPE_CHECKING:
    from stepscope.session.attach import Attachment
    from stepscope.session.held_call import HeldCall

KEPT_CALLS = 200
"""How many finished calls are held for the summary; every one of them has been written by then."""


FORKED = "a forked process calls pipelines, which is not recorded: add --children."


class ObservedProcess:
    """Observes every pipeline call of this process, from any thread, until closed.

    Neither torch nor diffusers nor numpy is imported before the program has done it: what observes is loaded
    at the first call. ``problem`` is told what could not be measured or written; the program goes on.
    """

    def __init__(self, options: AttachOptions, problem: Callable[[str], None]) -> None:
        """Raises UsageError if the dump's path is a folder, RunFailedError if a place cannot be written."""
        self.options = settled(options)
        plan_of(self.options, 0).places.check()
        self.began_unix_s = time.time()
        self.calls: deque[HeldCall] = deque(maxlen=KEPT_CALLS)
        self.count = 0
        self.pid = os.getpid()
        self._commit = commit_here()
        self._problem = problem
        self._attachment: Attachment | None = None
        self._lock = threading.RLock()  # a signal's handler may come in between
        self._told_of_fork = False
        self._watch = WatchAll(self._handle, here=False, block=self._block)
        self._watch.__enter__()

    def cut_off(self, error: BaseException) -> None:
        """The process ends here: write what its calls that are on their way have given so far."""
        if self._attachment is not None and os.getpid() == self.pid:
            self._attachment.cut_off(error)

    def close(self) -> None:
        """Take away everything that was installed."""
        self._watch.__exit__()
        if self._attachment is not None:
            self._attachment.close()

    def _handle(self, pipeline: Any, call: PipelineCall) -> Any:
        return self._attached().handle(pipeline, call) if self._is_mine() else call()

    def _block(self, name: str) -> AbstractContextManager[None]:
        return self._attached().call(name) if self._is_mine() else nullcontext()

    def _is_mine(self) -> bool:
        """Whether this process is to be observed: the one that began, or a fork of it if those are too."""
        if os.getpid() == self.pid:
            return True
        if self.options.children:
            self._begin_in_fork()
        elif not self._told_of_fork:
            self._told_of_fork = True
            self._problem(FORKED)
        return self.options.children

    def _attached(self) -> Attachment:
        with self._lock:
            if self._attachment is None:
                from stepscope.session.attach import Attachment

                self._attachment = Attachment(
                    plan=lambda number: plan_of(self.options, number),
                    keep=self._keep,
                    problem=self._problem,
                    commit=self._commit,
                )
            return self._attachment

    def _begin_in_fork(self) -> None:
        """A forked child begins anew: its files have its own name, the parent's calls are the parent's."""
        self.pid = os.getpid()
        self._lock = threading.RLock()  # the parent's may have been held by a thread that is not here
        self.options = replace(self.options, process=process_name())
        self._attachment, self.count = None, 0
        self.calls.clear()

    def _keep(self, call: HeldCall) -> None:
        self.calls.append(call)
        self.count += 1
