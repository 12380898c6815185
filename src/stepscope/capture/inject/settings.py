"""The environment variables by which a process knows that it is to be observed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SPOOL_VARIABLE = "STEPSCOPE"
"""The folder into which observed processes write. Not set: nothing of stepscope is loaded."""
HOME_VARIABLE = "STEPSCOPE_HOME"
"""The folder that holds the package ``stepscope``: the observed environment may not have it installed."""
SITE = Path(__file__).parent / "site"
"""What goes to the front of PYTHONPATH."""


def spool_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where this process is to write, or None if it is not observed."""
    named = environ.get(SPOOL_VARIABLE)
    return Path(named) if named else None


def injected(environ: Mapping[str, str], spool: Path) -> dict[str, str]:
    """The environment with which a command's Python processes, and theirs, are observed."""
    before = environ.get("PYTHONPATH")
    return {
        **environ,
        "PYTHONPATH": str(SITE) if not before else f"{SITE}{os.pathsep}{before}",
        SPOOL_VARIABLE: str(spool.absolute()),
        HOME_VARIABLE: str(Path(__file__).parents[3]),
    }
