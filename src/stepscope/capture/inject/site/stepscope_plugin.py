"""What SGLang's and vLLM-Omni's own plugin groups call, and ``sitecustomize`` too: whoever comes first."""

import importlib.util
import os
import sys
from typing import Any


class StepscopeFinder:
    """Finds the package ``stepscope`` and nothing else where the one who ran ``stepscope run`` has it.

    Its folder is not put on the path: it may be the site-packages of another environment, with another torch.
    """

    @staticmethod
    def find_spec(
        name: str,
        path: Any = None,  # noqa: ARG004  the interface
        target: Any = None,  # noqa: ARG004
    ) -> Any:
        if name != "stepscope":
            return None
        folder = os.path.join(os.environ.get("STEPSCOPE_HOME", ""), "stepscope")  # noqa: PTH118
        return importlib.util.spec_from_file_location(
            name,
            os.path.join(folder, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[folder],
        )


def start() -> None:
    """Start once in this process; never raise."""
    try:
        find_stepscope()
        from stepscope.capture.inject.start import start as begin

        begin()
    except Exception as error:
        complain(error)


def start_child() -> None:
    """Observe the pipelines of a child of ``stepscope run --children``; never raise."""
    try:
        find_stepscope()
        from stepscope.session.children import start_in_child

        start_in_child()
    except Exception as error:
        sys.stderr.write(f"stepscope: warning: a child process is not observed: {error}\n")


def find_stepscope() -> None:
    """Let the package be found where this environment has none."""
    if not any(finder is StepscopeFinder for finder in sys.meta_path):
        sys.meta_path.append(StepscopeFinder)


def complain(error: Exception) -> None:
    """One line into the log beside the records; nothing if even that cannot be written."""
    try:
        with open(os.path.join(os.environ["STEPSCOPE"], "stepscope.log"), "a") as log:  # noqa: PTH118, PTH123
            log.write(f"{os.getpid()}: stepscope did not start: {type(error).__name__}: {error}\n")
    except (OSError, KeyError):
        pass
