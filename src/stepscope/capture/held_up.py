"""Calls that hold each other up: a profiler that starts or stops in one thread stops all of them.

For the call whose profiler it is that is a pause or comes after it, and is in none of its times. For any
other call of the process it looks like a slow step, and nothing in its own record would tell why.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

KEPT = 256
"""Pauses that are remembered: a call that was made beside more of them is told of the newest."""

_lock = threading.Lock()
_under_way: dict[int, int] = {}  # thread -> when its pause began
_over: deque[tuple[int, int, int]] = deque(maxlen=KEPT)  # thread, began, ended


@contextmanager
def holding_up_others() -> Iterator[None]:
    """What this thread does to its profiler."""
    thread = threading.get_ident()
    with _lock:
        _under_way[thread] = time.perf_counter_ns()
    try:
        yield
    finally:
        with _lock:
            _over.append((thread, _under_way.pop(thread), time.perf_counter_ns()))


def held_up_ns(start_ns: int, end_ns: int) -> int:
    """How much of an interval the pauses of other threads took; ``perf_counter_ns``."""
    thread = threading.get_ident()
    with _lock:
        pauses = [(began, ended) for other, began, ended in _over if other != thread]
        pauses += [(began, end_ns) for other, began in _under_way.items() if other != thread]
    covered, until = 0, start_ns
    for began, ended in sorted(pauses):
        covered += max(0, min(ended, end_ns) - max(began, until))
        until = max(until, min(ended, end_ns))
    return covered
