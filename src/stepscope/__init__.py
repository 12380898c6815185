"""stepscope: know where the time goes in diffusion inference.

Everything public is importable from here; it is imported when it is first used, so that ``import stepscope``
costs nothing and needs neither torch nor diffusers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.capture.marks import call, stage, step
    from stepscope.model.dump import PerfDump
    from stepscope.model.errors import RunFailedError, StepscopeError, UnreadableInputError, UsageError
    from stepscope.model.run import Run
    from stepscope.session.api import generate
    from stepscope.session.generate_options import GenerateResult
    from stepscope.session.profile import ProfileSession, profile
    from stepscope.session.profiled_call import ProfiledCall

__version__ = "0.1.0"
__all__ = [
    "GenerateResult",
    "PerfDump",
    "ProfileSession",
    "ProfiledCall",
    "Run",
    "RunFailedError",
    "StepscopeError",
    "UnreadableInputError",
    "UsageError",
    "__version__",
    "call",
    "generate",
    "profile",
    "stage",
    "step",
]

_HOME = {
    "GenerateResult": "stepscope.session.generate_options",
    "PerfDump": "stepscope.model.dump",
    "ProfileSession": "stepscope.session.profile",
    "ProfiledCall": "stepscope.session.profiled_call",
    "Run": "stepscope.model.run",
    "RunFailedError": "stepscope.model.errors",
    "StepscopeError": "stepscope.model.errors",
    "UnreadableInputError": "stepscope.model.errors",
    "UsageError": "stepscope.model.errors",
    "call": "stepscope.capture.marks",
    "generate": "stepscope.session.api",
    "profile": "stepscope.session.profile",
    "stage": "stepscope.capture.marks",
    "step": "stepscope.capture.marks",
}
"""Where each public name lives."""


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext stepscope``: the cell magic ``%%stepscope``."""
    import_module("stepscope.integrations.notebook").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext stepscope``."""
    import_module("stepscope.integrations.notebook").unload(shell)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
