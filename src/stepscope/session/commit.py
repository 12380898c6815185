"""The commit that a run is noted under, found as SGLang finds it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

COMMIT_VARIABLE = "SGLANG_GIT_COMMIT"
GIT_TIMEOUT_S = 5


def commit_here(environ: Mapping[str, str] = os.environ) -> str | None:
    """The variable if it is set, else the commit of the working directory; None where there is neither."""
    if named := environ.get(COMMIT_VARIABLE):
        return named
    try:
        git = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            check=False,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return git.stdout.strip() or None if git.returncode == 0 else None
