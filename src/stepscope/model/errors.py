"""Every error that stepscope raises on purpose.

    StepscopeError                 what happened, where, what to do next; shown as one line
    ├── UsageError                 the call was wrong: exit status 2
    │   └── UnreadableInputError   a file given to us cannot be read as what it should be
    └── RunFailedError             the work could not be done: exit status 1

A pipeline's own exception is never wrapped: it goes on as it is.
"""

from __future__ import annotations

import signal


class StepscopeError(Exception):
    """What went wrong and what to do next, in one line for the person at the terminal."""

    exit_status = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message} {remedy}".strip())


class UsageError(StepscopeError):
    """The call itself was wrong: an unknown model, a flag the pipeline cannot take, an unreadable file."""

    exit_status = 2


class UnreadableInputError(UsageError):
    """A trace, dump or configuration that cannot be read as what it should be."""


class RunFailedError(StepscopeError):
    """The call was right but the work could not be done: out of memory, a full disk, a missing tool."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory, a device's or the host's, ran out: the error itself or one that caused it.

    Not every allocator has a type of its own: torch's CPU allocator and the libraries below CUDA raise
    ``RuntimeError``. torch is not imported for its exception's sake.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY):
            return True
        error = error.__cause__
    return False


_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C's asked the process to end. Like that one, no error of anybody's."""

    def __init__(self, number: int) -> None:
        self.exit_status = 128 + number  # as shells have it
        super().__init__(signal.Signals(number).name)
