"""Torch has one profiler a process, and two at once end the process (torch 2.13: it crashes or hangs).

So only one recording of ours is at work, whatever thread it is in, none begins beside somebody else's, and
ours makes way when somebody else's begins.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

from stepscope.capture.wrapping import Wrappers

WAIT_S = 30.0
"""How long somebody else's profiler waits in its own thread for our recording in another to end."""

ENTRIES = ("_prepare_profiler", "_enable_profiler")
"""What every way to start a profiler in Python calls, by these names in ``torch.autograd.profiler``."""

_changed = threading.Condition()
_holders: list[Recording] = []


class Recording:
    """Torch's profiler while it is ours. ``make_way`` stops it, and is called in the thread that took it."""

    def __init__(self, make_way: Callable[[], None]) -> None:
        self.make_way = make_way
        self.starting = True
        self.wanted = False  # somebody waits for it in another thread
        self._thread = threading.get_ident()
        self._wrappers = Wrappers()

    def take(self, *, other_warms_up: bool) -> None:
        """Take it, or raise RuntimeError with who has it; ``other_warms_up`` is what ``warming_up`` found."""
        import torch

        with _changed:
            if _holders:
                message = "another call is being traced, and torch has one profiler a process"
                raise RuntimeError(message)
            if other_warms_up or foreign_records():
                message = "another torch.profiler is already recording"
                raise RuntimeError(message)
            _holders.append(self)
        for name in ENTRIES:
            self._wrappers.wrap(torch.autograd.profiler, name, self._making_way)

    def give_back(self) -> None:
        """It is somebody else's to take; without effect where it is not ours."""
        self._wrappers.remove()
        with _changed:
            if self in _holders:
                _holders.remove(self)
                _changed.notify_all()

    def _making_way(self, original: Callable[..., Any], _name: str) -> Callable[..., Any]:
        def enter(*args: Any, **kwargs: Any) -> Any:
            if _holders:
                _holders[0].somebody_begins()
            return original(*args, **kwargs)

        return enter

    def somebody_begins(self) -> None:
        """A profiler is about to be started: by us, or by somebody who comes first."""
        if threading.get_ident() == self._thread:
            if not self.starting:
                self.make_way()
            return
        with _changed:
            self.wanted = True
            _changed.wait_for(lambda: self not in _holders, timeout=WAIT_S)


def foreign_records() -> bool:
    """Whether a profiler records, in any thread."""
    import torch

    known: Any = torch.autograd.profiler
    return bool(torch.autograd._profiler_enabled() or known._is_profiler_enabled)


def warming_up() -> bool:
    """Whether a profiler with a schedule is in its warm-up: another that starts beside it ends the process.

    Torch does not tell, so all living objects are looked at: 0.1 s where there are half a million. So it is
    asked before a traced call, never in it.
    """
    from torch.profiler import ProfilerAction, profile

    found: list[Any] = [thing for thing in gc.get_objects() if issubclass(type(thing), profile)]
    started = [known for known in found if known.step_rec_fn is not None]  # and not stopped
    return any(known.current_action is ProfilerAction.WARMUP for known in started)
