"""What several test files need."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of real traces beside the clone; a test that needs it is skipped where there is none."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "shared" / "traces"
        if folder.is_dir():
            return folder
    pytest.skip("shared/traces is absent")
