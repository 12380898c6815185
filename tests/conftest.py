"""Fixtures for all tests. The autouse one proves that a test left nothing installed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import leftovers

hypothesis.settings.register_profile(  # a busy machine decides no test
    "no wall time", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no wall time")

for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        # Started in the background or under nohup: programs that tests start would inherit that and ignore
        # what they are sent. A handler is not inherited.
        signal.signal(ignored, lambda *_: None)

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ anew; review the diff")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/NAME, or write that file with --update-golden."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run pytest --update-golden and review it"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(autouse=True)
def an_undisturbed_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether others use the machine must not decide a test; those of the CPU's use have folders."""
    monkeypatch.setattr("stepscope.capture.cpu_use.THREADS", Path("/nowhere"))


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """After each test no wrapper, active call or profiler is left, on classes or on what the test made."""
    leftovers.watch_what_is_made()
    yield
    leftovers.watch_what_is_made()
    assert leftovers.found() == []


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is the test's own: the default places (./logs, ./outputs) lie in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("STEPSCOPE_PROFILE_DIR", "SGLANG_DIFFUSION_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def sd() -> Any:
    """A tiny StableDiffusionPipeline, one a test module."""
    import pipelines

    return pipelines.stable_diffusion()


@pytest.fixture(scope="module")
def flux() -> Any:
    """A tiny FluxPipeline, one a test module."""
    import pipelines

    return pipelines.flux()


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The recorded traces beside the clone; tests that need them are skipped where they are absent."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "shared" / "traces").is_dir():
            return folder / "shared" / "traces"
    pytest.skip("shared/traces is absent")
