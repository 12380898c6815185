"""What users import is what is listed, and importing it is free."""

import subprocess
import sys

import stepscope


def test_the_public_names_are_these() -> None:
    """A change here is a change of the public API: say so in the changelog."""
    assert stepscope.__all__ == [
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
    assert all(getattr(stepscope, name) is not None for name in stepscope.__all__)
    assert dir(stepscope) == stepscope.__all__


def test_every_public_object_is_documented() -> None:
    """A docstring each."""
    assert all(getattr(stepscope, name).__doc__ for name in stepscope.__all__)


def test_importing_and_asking_for_help_loads_neither_torch_nor_numpy() -> None:
    """--help must be instant on a laptop without torch."""
    code = (
        "import sys, stepscope; from stepscope.cli import build_parser; build_parser();"
        "heavy = {'torch', 'diffusers', 'numpy', 'rich', 'msgspec', 'scipy', 'plotly'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
