"""What calls of the same pipeline came before one: the warm-up of a program that nobody warms up."""

from __future__ import annotations

import weakref
from typing import Any

from stepscope.model.run import Warmup
from stepscope.session.warmup import not_warmed_up


class Earlier:
    """The calls of one pipeline so far."""

    def __init__(self) -> None:
        self._count = 0
        self._steps = 0
        self._unsteady: tuple[str, ...] = ()

    def note(self, steps: int, unsteady: tuple[str, ...]) -> None:
        """One more call has ended, with so many steps."""
        self._count += 1
        self._steps, self._unsteady = steps, unsteady

    def warmup(self) -> Warmup:
        """What was done before the call that comes now."""
        if self._count == 0:
            return not_warmed_up("the first call of this pipeline seen here; earlier ones are not known")
        return Warmup(
            requests=self._count,
            steps_each=self._steps,
            steady=not self._unsteady,
            reason="; ".join(self._unsteady)
            or "the program's own, and nothing that is done once was in the last",
        )


class EarlierCalls:
    """By pipeline, none of which is kept alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Earlier]] = {}

    def of(self, pipeline: Any) -> Earlier:
        """What is known of this very object; a block of code is always new."""
        key = id(pipeline)
        known = self._known.get(key)
        if known is not None and known[0]() is pipeline:
            return known[1]
        earlier = Earlier()
        try:
            reference = weakref.ref(pipeline, lambda _: self._known.pop(key, None))
        except TypeError:  # a class with slots and no room for references
            return earlier
        self._known[key] = (reference, earlier)
        return earlier
