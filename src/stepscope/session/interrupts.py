"""Ctrl-C and its like, held back while what was recorded is made into files.

A run that ended must not be lost to an impatient second Ctrl-C: what it left is frozen and written with
signals held back, and the slow parts (a picture, a trace) can be given up one at a time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from stepscope.model.errors import Terminated

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)
INSISTENCE = 3
"""So many signals in a row are obeyed at once, whatever is lost."""


class Interrupts:
    """The signals that arrived while they were held back."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}  # of whoever was there before
        self._waiting: list[tuple[int, FrameType | None]] = []

    @contextmanager
    def held_back(self) -> Iterator[Interrupts]:
        """Let signals wait inside. Only Python handlers are replaced, and only by the main thread.

        What waits at the end is still to be asked for with ``pending``.
        """
        if _in_main_thread():
            current = {number: signal.getsignal(number) for number in SIGNALS}
            self._handlers = {number: handler for number, handler in current.items() if callable(handler)}
        self._install(dict.fromkeys(self._handlers, self._wait))
        try:
            yield self
        finally:
            self._install(self._handlers)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let signals do inside what they did before they were held back."""
        self._install(self._handlers)
        try:
            yield
        finally:
            self._install(dict.fromkeys(self._handlers, self._wait))

    def pending(self) -> BaseException | None:
        """What the first signal that waited raises now; None where none did or its handler raises nothing."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return None
        number, frame = waiting[0]
        try:
            self._handlers[number](number, frame)
        except BaseException as raised:
            return raised
        return None

    def _wait(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((number, frame))
        if len(self._waiting) >= INSISTENCE:
            self._waiting.clear()
            self._handlers[number](number, frame)

    @staticmethod
    def _install(handlers: dict[int, Any]) -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def termination_raises() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into ``Terminated`` inside, so that they leave what Ctrl-C leaves.

    A signal that is ignored (``nohup``) or handled already stays as it is.
    """
    mine = [
        number
        for number in SIGNALS
        if number != signal.SIGINT and signal.getsignal(number) is signal.SIG_DFL and _in_main_thread()
    ]
    for number in mine:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


GRACE_S = 20.0
"""How long what was recorded may take to be written before the process is ended without it."""


def before_ending(work: Callable[[Terminated], None]) -> None:
    """Do ``work`` when SIGTERM or SIGHUP is about to end the process, which it does all the same.

    By default they end it at once, and Python gets no chance. Only where nobody has set a handler, and only
    in the main thread; who sets one later replaces this. No exception is raised in the program and none of
    its exit functions runs, as without. A second signal ends it at once, and so does work that takes longer
    than ``GRACE_S``.
    """
    if not _in_main_thread():
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        timer = threading.Timer(GRACE_S, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()
        try:
            work(Terminated(number))
        finally:  # whatever went wrong: the process was to end
            os.kill(os.getpid(), number)

    for number in SIGNALS:
        if number != signal.SIGINT and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, handle)


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise Terminated(number)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
