"""Where an iteration of a pipeline's loop ends: its progress bar moves on, after the user's callback.

Without it the last known call of an iteration is ``scheduler.step``, and what follows (a callback that reads
a value, saves a preview, sleeps) would be told as part of the next step, and after the last of the decoding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from stepscope.capture.active import ACTIVE
from stepscope.capture.components import Known
from stepscope.capture.wrapping import Wrappers
from stepscope.model.recording import CallKind

ENDS = {name: Known(CallKind.ITERATION, "progress_bar", name) for name in ("update", "close")}
"""``update`` ends one iteration, ``close`` the loop: a callback of the older kind comes after ``update``."""


def watch_iterations(wrappers: Wrappers) -> None:
    """Wrap what moves the progress bars that diffusers makes (``tqdm.auto``'s), shown or not."""
    module = sys.modules.get("tqdm.auto")
    if module is not None:
        for name in ENDS:
            wrappers.wrap(module.tqdm, name, _make_counted)


def _make_counted(original: Callable[..., Any], attribute: str) -> Callable[..., Any]:
    known = ENDS[attribute]

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = ACTIVE.get()
        if call is None or not call.enter_unstaged(known):
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            call.leave(known)

    return counted
