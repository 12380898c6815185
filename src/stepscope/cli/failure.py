"""A pipeline's own exception at the terminal: its traceback from the pipeline on, and one line of ours."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import TracebackType

from stepscope.model.errors import StepscopeError, is_out_of_memory

PACKAGE = Path(__file__).resolve().parent.parent


def show_failure(error: BaseException | None, *, recorded: bool) -> int:
    """Show what a run failed with and return the exit status; errors that main prints are raised.

    ``recorded``: something of the failed run is on disk.
    """
    if error is None:
        return 0
    if isinstance(error, (KeyboardInterrupt, StepscopeError)):
        raise error
    foreign = _outside_stepscope(error.__traceback__)
    frames = foreign or error.__traceback__  # a fault of our own is not hidden
    print("".join(traceback.format_exception(type(error), error, frames)), end="", file=sys.stderr)
    then = "what was recorded until then is written" if recorded else "nothing of the run was recorded"
    message = f"the pipeline failed with {type(error).__name__}; {then}."
    print(f"stepscope: error: {message} {_remedy(error)}".rstrip(), file=sys.stderr)
    return _own_status(error) if isinstance(error, SystemExit) else 1


def _own_status(error: SystemExit) -> int:
    """The status that a pipeline asked for, never 0: it was to give an image and gave none."""
    code = error.code
    return code if isinstance(code, int) and code & 0xFF else 1


def _outside_stepscope(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is not ours; None where all are."""
    while frames is not None and PACKAGE in Path(frames.tb_frame.f_code.co_filename).parents:
        frames = frames.tb_next
    return frames


def _remedy(error: BaseException) -> str:
    """What helps, where the kind of error tells."""
    if is_out_of_memory(error):
        return "Try a smaller size, fewer frames, --vae-tiling or --offload model."
    return ""
