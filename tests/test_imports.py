"""The package imports without torch, and quickly enough to be pleasant."""

import subprocess
import sys


def test_importing_the_model_does_not_import_torch() -> None:
    """model/ has no I/O and no torch."""
    code = (
        "import sys, stepscope.model.run, stepscope.model.trace, stepscope.model.dump, stepscope.cli;"
        "assert not {'torch', 'diffusers', 'transformers'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
