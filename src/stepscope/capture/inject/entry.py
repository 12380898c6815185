"""What an engine's plugin group calls where stepscope is installed beside it: ``STEPSCOPE=DIR sglang serve``.

Loads nothing of stepscope unless the variable is set, and never raises.
"""

from __future__ import annotations

import logging
import os


def start() -> None:
    """Observe this process if the variable STEPSCOPE names a folder."""
    if not os.environ.get("STEPSCOPE"):
        return
    try:
        from stepscope.capture.inject.start import start as begin

        begin()
    except Exception:
        logging.getLogger("stepscope").exception("stepscope did not start; the engine goes on without it")
