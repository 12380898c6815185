"""Fixtures for all tests. The autouse one proves that a test left nothing installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
    """After each test no wrapper, active call or profiler is left."""
    yield
    leftovers = _leftovers()
    assert leftovers == []


def _leftovers() -> list[str]:
    found = []
    if "stepscope.capture.wrapping" in sys.modules:
        from stepscope.capture.wrapping import installed_count

        if installed_count():
            found.append(f"{installed_count()} wrappers")
    if "stepscope.capture.active" in sys.modules:
        from stepscope.capture.active import ACTIVE

        if ACTIVE.get() is not None:
            found.append("an active call")
    if "torch" in sys.modules:
        import torch

        if torch.autograd.profiler._is_profiler_enabled:
            found.append("a running profiler")
    if "stepscope.capture.watching" in sys.modules:
        from stepscope.capture import pipeline_classes, watching
        from stepscope.capture.inject.post_import import PostImport

        found += ["a watch"] * len(watching._everywhere)
        found += [f"{base.__name__}.__init_subclass__" for base in pipeline_classes._hooked]
        found += ["an import hook"] * sum(isinstance(finder, PostImport) for finder in sys.meta_path)
    found += _marked_classes()
    return found


def _marked_classes() -> list[str]:
    """Any class of torch, diffusers, transformers or the tests that still carries one of our functions."""
    if "torch" not in sys.modules:
        return []
    import torch

    roots: list[Any] = [torch.nn.Module]
    for module, names in (
        ("diffusers.pipelines.pipeline_utils", ("DiffusionPipeline",)),
        ("diffusers.schedulers.scheduling_utils", ("SchedulerMixin",)),
        ("diffusers.configuration_utils", ("ConfigMixin",)),
        ("diffusers.hooks.group_offloading", ("ModuleGroup",)),
        ("accelerate.hooks", ("ModelHook", "UserCpuOffloadHook")),
        ("torch.cuda.graphs", ("CUDAGraph",)),
    ):
        roots += [getattr(sys.modules[module], name) for name in names if module in sys.modules]
    seen: set[Any] = set()
    while roots:
        cls = roots.pop()
        if cls not in seen:
            seen.add(cls)
            roots += type.__subclasses__(cls)
    return [
        f"{cls.__name__}.{name}"
        for cls in seen
        for name, value in vars(cls).items()
        if getattr(value.fget if isinstance(value, property) else value, "__stepscope_wrapper__", False)
    ]


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The recorded traces beside the clone; tests that need them are skipped where they are absent."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "shared" / "traces").is_dir():
            return folder / "shared" / "traces"
    pytest.skip("shared/traces is absent")
