"""The environment variables by which a process knows that it is to be observed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SPOOL_VARIABLE = "STEPSCOPE"
"""The folder into which observed processes write. Not set: nothing of stepscope is loaded."""
HOME_VARIABLE = "STEPSCOPE_HOME"
"""The folder that holds the package ``stepscope``: the observed environment may not have it installed."""
CHILDREN_VARIABLE = "STEPSCOPE_CHILDREN"
"""What to do about pipeline calls in the children of ``stepscope run --children``, as JSON."""
SITE = Path(__file__).parent / "site"
"""What goes to the front of PYTHONPATH."""


def spool_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where this process is to write, or None if it is not observed."""
    named = environ.get(SPOOL_VARIABLE)
    return Path(named) if named else None


def injected(environ: Mapping[str, str], spool: Path) -> dict[str, str]:
    """The environment with which a command's Python processes, and theirs, are observed."""
    return {**environ, **on_path(environ), SPOOL_VARIABLE: str(spool.absolute())}


def on_path(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that let ``sitecustomize`` and the package be found; they switch nothing on."""
    before = environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": str(SITE) if not before else f"{SITE}{os.pathsep}{before}",
        HOME_VARIABLE: str(Path(__file__).parents[3]),
    }
