"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The recorded traces beside the clone; tests that need them are skipped where they are absent."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "shared" / "traces").is_dir():
            return folder / "shared" / "traces"
    pytest.skip("shared/traces is absent")
