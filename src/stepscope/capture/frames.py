"""Tracebacks without our frames: a user's exception shows the user's code."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


def hide_our_frames(error: BaseException) -> None:
    """Unlink our frames from an exception's traceback, and from those of its cause and context.

    The first frame stays where it is ours: the interpreter holds it while the exception is on its way.
    """
    for one in _chain(error):
        at = one.__traceback__
        while at is not None:
            following = at.tb_next
            if following is not None and _is_ours(following):
                at.tb_next = following.tb_next
            else:
                at = following


def without_our_frames(error: BaseException) -> TracebackType | None:
    """The traceback of an exception that has arrived, without our frames; the exception has it too."""
    hide_our_frames(error)
    for one in _chain(error):
        if one.__traceback__ is not None and _is_ours(one.__traceback__):
            one.__traceback__ = one.__traceback__.tb_next
    return error.__traceback__


def _is_ours(at: TracebackType) -> bool:
    return at.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _chain(error: BaseException) -> list[BaseException]:
    """The exception, its causes and contexts, and the members of groups, each once."""
    found: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return list(found.values())
