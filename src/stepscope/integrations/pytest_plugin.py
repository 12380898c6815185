"""``pytest --stepscope``: every test's pipeline calls measured, and limits on them by marks.

    @pytest.mark.limit_step_ms(50)                      # the median step; statistic="max" for every one
    @pytest.mark.limit_stage_ms("DecodingStage", 80)
    @pytest.mark.limit_peak_memory_mb(8000)
    @pytest.mark.no_sync_in_loop

Without ``--stepscope`` nothing is observed and no limit applies. Installed by entry point, so this module
imports nothing that a test-suite without pipelines would have to pay for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

MARKS = (
    "limit_step_ms(limit, statistic='median'): denoising steps take at most so many ms, with --stepscope",
    "limit_stage_ms(stage, limit): a stage takes at most so many ms, with --stepscope",
    "limit_peak_memory_mb(limit): the device's allocator peaks at most there, in MiB, with --stepscope",
    "no_sync_in_loop: nothing in the denoising loop makes the host wait for the device, with --stepscope",
)
OLDEST_PYTEST = (8, 0)
"""The first with wrapping hooks that may fail a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our two options."""
    group = parser.getgroup("stepscope", "measuring diffusion pipelines")
    group.addoption("--stepscope", action="store_true", help="measure pipeline calls and check their limits")
    group.addoption(
        "--stepscope-dir", type=Path, metavar="DIR", help="keep records and traces of every test there"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks; observe only where it was asked for."""
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    if not config.getoption("--stepscope"):
        if config.getoption("--stepscope-dir"):
            raise pytest.UsageError("--stepscope-dir keeps nothing without --stepscope.")
        return
    if pytest.version_tuple[:2] < OLDEST_PYTEST:
        raise pytest.UsageError(f"--stepscope needs pytest 8 or newer; this is {pytest.__version__}.")
    from stepscope.integrations.pytest_observer import Observing

    config.pluginmanager.register(Observing(config.getoption("--stepscope-dir")), "stepscope-observer")
