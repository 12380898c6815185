"""A finished call in memory, of which nothing is worked out before somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stepscope.session.keep import KeptCall


class HeldCall:
    """One finished call.

    Making stages, steps and a dump of what was noted takes some 40 us a step (benchmarks/attached_cost.py).
    A server's request does not wait for that: it is done once, when the result is first looked at.
    """

    def __init__(self, make: Callable[[], KeptCall]) -> None:
        self._make: Callable[[], KeptCall] | None = make
        self._kept: KeptCall | None = None
        self._lock = threading.Lock()

    @property
    def kept(self) -> KeptCall:
        """The run and its dump."""
        with self._lock:
            if self._kept is None:
                assert self._make is not None
                self._kept, self._make = self._make(), None
            return self._kept
