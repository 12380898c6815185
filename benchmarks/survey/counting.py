"""How often a pipeline steps its schedulers, counted without stepscope: a check of its steps."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any
from unittest import mock

METHODS = ("step", "step_pred")


class SchedulerCounter:
    """While entered, counts the calls of ``step`` of the schedulers that a pipeline holds."""

    def __init__(self, pipeline: Any) -> None:
        self._schedulers = list(_schedulers(pipeline))
        self._counts: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._patches = ExitStack()

    def __enter__(self) -> SchedulerCounter:
        for owner in dict.fromkeys(map(type, self._schedulers)):
            for method in METHODS:
                if callable(getattr(owner, method, None)):
                    counted = self._counting(getattr(owner, method))
                    self._patches.enter_context(mock.patch.object(owner, method, counted))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _counting(self, original: Any) -> Any:
        @functools.wraps(original)
        def counted(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            self._counts[id(scheduler)] = self._counts.get(id(scheduler), 0) + 1
            self._names.setdefault(id(scheduler), type(scheduler).__name__)
            return original(scheduler, *args, **kwargs)

        return counted

    def numbers(self) -> tuple[int, ...]:
        """Calls of each scheduler that was stepped, in the order of their first call; copies count too."""
        return tuple(self._counts.values())

    def classes(self) -> tuple[str, ...]:
        """The class of each."""
        return tuple(self._names.values())


def _schedulers(pipeline: Any) -> Any:
    for value in vars(pipeline).values():
        if any(callable(getattr(type(value), method, None)) for method in METHODS):
            yield value
        elif hasattr(value, "register_modules"):  # a pipeline inside another
            yield from _schedulers(value)
