"""Whether observed calls get NVTX ranges: asked for, or because Nsight Systems is watching this process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stepscope.capture.nsight.marker import NvtxRequest, nvtx_request
from stepscope.model.errors import RunFailedError
from stepscope.model.nsight import CAPTURE_VARIABLE, Capture

NSYS_VARIABLE = "NSYS_PROFILING_SESSION_ID"
"""Nsight Systems sets it in the processes that it starts."""


def requested_nvtx(
    *, asked: bool = False, layers: bool = False, environ: Mapping[str, str] = os.environ
) -> NvtxRequest | None:
    """What to mark and capture; None: nothing.

    Raises:
        RunFailedError: ranges were asked for and the nvtx package is not installed.
        UsageError: the variable that says what to capture holds something else.

    """
    text = environ.get(CAPTURE_VARIABLE)
    wanted = asked or layers or bool(text)
    if not wanted and NSYS_VARIABLE not in environ:
        return None
    capture = Capture.from_text(text) if text else None
    try:
        return nvtx_request(capture, layers=layers)
    except RunFailedError:
        if wanted:
            raise
        return None
