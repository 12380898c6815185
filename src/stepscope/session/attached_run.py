"""A whole process observed, from before its first import of torch to its end."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from stepscope.capture.watching import PipelineCall, WatchAll
from stepscope.session.attach_plan import AttachOptions, plan_of, settled
from stepscope.session.commit import commit_here

if TYPE_CHECKING:
    from stepscope.session.attach import Attachment
    from stepscope.session.held_call import HeldCall

KEPT_CALLS = 200
"""How many finished calls are held for the summary; every one of them has been written by then."""


class ObservedProcess:
    """Observes every pipeline call of this process, from any thread, until closed.

    Neither torch nor diffusers nor numpy is imported before the program has done it: what observes is loaded
    at the first call. ``problem`` is told what could not be measured or written; the program goes on.
    """

    def __init__(self, options: AttachOptions, problem: Callable[[str], None]) -> None:
        """Raises UsageError if the dump's path is a folder, RunFailedError if a place cannot be written."""
        self._options = settled(options)
        plan_of(self._options, 0).places.check()
        self.calls: deque[HeldCall] = deque(maxlen=KEPT_CALLS)
        self.count = 0
        self.pid = os.getpid()
        self._commit = commit_here()
        self._problem = problem
        self._attachment: Attachment | None = None
        self._lock = threading.Lock()
        self._watch = WatchAll(self._handle, here=False, block=self._block)
        self._watch.__enter__()

    def close(self) -> None:
        """Take away everything that was installed."""
        self._watch.__exit__()
        if self._attachment is not None:
            self._attachment.close()

    def _handle(self, pipeline: Any, call: PipelineCall) -> Any:
        return self._attached().handle(pipeline, call)

    def _block(self, name: str) -> AbstractContextManager[None]:
        return self._attached().call(name)

    def _attached(self) -> Attachment:
        with self._lock:
            if self._attachment is None:
                from stepscope.session.attach import Attachment

                self._attachment = Attachment(
                    plan=lambda number: plan_of(self._options, number),
                    keep=self._keep,
                    problem=self._problem,
                    commit=self._commit,
                )
            return self._attachment

    def _keep(self, call: HeldCall) -> None:
        self.calls.append(call)
        self.count += 1
