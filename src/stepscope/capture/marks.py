"""Stages and steps of code that is no diffusers pipeline, marked by the program itself."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from stepscope.capture.active import ACTIVE, ActiveCall
from stepscope.capture.components import Known
from stepscope.capture.watching import begin_block_here, observed_block
from stepscope.model.errors import UsageError
from stepscope.model.recording import CallKind

_NOTHING: AbstractContextManager[None] = nullcontext()
_LONGEST_NAME = 100


def stage(name: str) -> AbstractContextManager[None]:
    """Mark a stage: ``with stepscope.stage("MyDecoder"): ...``.

    Inside an observed call its time is that stage's, except what a stage further inside takes. Nothing is
    waited for; on an accelerator the duration is the device's. In a program that nobody observes it does
    nothing and costs some 0.2 us, so it may stay in. Not for code that is compiled: mark around it.

    Raises:
        UsageError: the name is empty, longer than 100 characters or no text.

    """
    active = ACTIVE.get() or begin_block_here()
    return _NOTHING if active is None else _Stage(active, _checked(name))


def step(index: int) -> AbstractContextManager[None]:  # noqa: ARG001  it is read, by people
    """Mark one iteration of a denoising loop: ``for i in range(20): with stepscope.step(i): ...``.

    Steps are numbered in their order and run on over several loops, as those of a pipeline do: ``index`` is
    for the reader of the program. Where a program marks steps itself, only those count in its trace window.
    Outside of an observed call it does nothing, as ``stage``.
    """
    active = ACTIVE.get() or begin_block_here()
    return _NOTHING if active is None else _Step(active)


def call(name: str) -> AbstractContextManager[None]:
    """Mark one call of code that is no diffusers pipeline; ``stage`` and ``step`` mark what is inside.

    Pipelines that are called inside are part of it. Inside a call that is observed already it does nothing,
    and neither does it in a program that nobody observes.

    Raises:
        UsageError: the name is empty, longer than 100 characters or no text.

    """
    if ACTIVE.get() is not None:
        return _NOTHING
    return observed_block(_checked(name))


def _checked(name: str) -> str:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
        raise UsageError(f"{name!r} is no name.", remedy="Give a short text, as in MyDecoder.")
    return name


def _forget(named: list[Known], one: Known) -> None:
    """Take out the last of these that is this one; it need not be the last of all, nor be there."""
    at = next((at for at in reversed(range(len(named))) if named[at] is one), None)
    if at is not None:
        del named[at]


class _Stage:
    """One stage while it is open; notes nothing where its beginning fell into a graph capture."""

    __slots__ = ("_call", "_entered", "_known")

    def __init__(self, call: ActiveCall, name: str) -> None:
        self._call = call
        self._known = Known(CallKind.CUSTOM, name, "", stage=name)
        self._entered = False

    def __enter__(self) -> None:
        self._entered = self._call.enter(self._known, (), {})
        self._call.named.append(self._known)

    def __exit__(self, *_: Any) -> None:
        _forget(self._call.named, self._known)
        if self._entered:
            self._call.leave(self._known)


class _Step:
    """One marked iteration: part of the stage that is named around it, else of DenoisingStage."""

    __slots__ = ("_call", "_entered", "_known")

    def __init__(self, call: ActiveCall) -> None:
        self._call = call
        self._known = Known(CallKind.STEP, "step", "", stage=call.named[-1].component if call.named else None)
        self._entered = False

    def __enter__(self) -> None:
        self._entered = self._call.enter(self._known, (), {})
        self._call.steps_open += 1

    def __exit__(self, *_: Any) -> None:
        self._call.steps_open -= 1
        if self._entered:
            self._call.leave(self._known)
