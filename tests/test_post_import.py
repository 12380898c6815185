"""Waiting for a module's import, and leaving no trace of having waited."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepscope.capture.inject.post_import import PostImport
from stepscope.capture.pipeline_classes import PipelineClasses


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path; modules of the test are forgotten afterwards."""
    (tmp_path / "waited_for.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("waited_for", None)


def test_the_action_comes_right_after_the_import(fresh: Path) -> None:
    """With the finished module, once, and the module keeps its own loader."""
    seen: list[ModuleType] = []
    waiting = PostImport(frozenset({"waited_for"}), seen.append)
    waiting.install()
    import waited_for

    waiting.remove()
    assert [module.value for module in seen] == [1]
    assert type(waited_for.__spec__.loader).__name__ == "SourceFileLoader"
    assert Path(waited_for.__file__) == fresh / "waited_for.py"


def test_a_module_that_fails_to_import_fails_as_ever(fresh: Path) -> None:
    """No action, its own exception, and it may be tried again."""
    (fresh / "waited_for.py").write_text("raise RuntimeError('broken')\n")
    seen: list[ModuleType] = []
    waiting = PostImport(frozenset({"waited_for"}), seen.append)
    waiting.install()
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("waited_for")
    waiting.remove()

    assert seen == []
    assert "waited_for" not in sys.modules


def test_a_missing_module_stays_missing() -> None:
    """ModuleNotFoundError, as without us."""
    waiting = PostImport(frozenset({"waited_for_in_vain"}), lambda _: None)
    waiting.install()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("waited_for_in_vain")
    waiting.remove()


def make(original: Any, _name: str) -> Any:
    def wrapped(self: Any, *args: Any) -> Any:
        return ("seen", original(self, *args))

    return wrapped


def test_classes_are_wrapped_while_anybody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two who overlap, classes defined between, a base with its own hook: all as before at the end."""
    defined = []

    class Base:
        def __init_subclass__(cls, **keywords: Any) -> None:
            defined.append((cls.__name__, keywords))

        def __call__(self) -> int:
            return 0

    module = ModuleType("diffusers.pipelines.pipeline_utils")
    module.DiffusionPipeline = Base
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "diffusers.modular_pipelines.modular_pipeline", raising=False)
    before = dict(vars(Base))
    first, second = PipelineClasses(make), PipelineClasses(make)
    first.install()

    class One(Base, answer=1):
        def __call__(self) -> int:
            return 1

    second.install()
    first.remove()

    class Two(One):
        def __call__(self) -> int:
            return 2

    assert (Base()(), One()(), Two()()) == (("seen", 0), ("seen", 1), ("seen", 2))
    second.remove()
    assert (Base()(), One()(), Two()()) == (0, 1, 2)
    assert defined == [("One", {"answer": 1}), ("Two", {})]
    assert dict(vars(Base)) == before
