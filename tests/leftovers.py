"""What an observation may have left behind: on classes, on the pipelines and parts of a test, in torch."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections.abc import Iterator
from typing import Any

_made: dict[int, weakref.ref[Any]] = {}
"""Every pipeline, model and scheduler that is alive, by identity: some compare equal or have no hash."""
_new: list[weakref.ref[Any]] = []
"""Those made since the last look: their submodules are looked at once."""
_watched: set[type] = set()


def watch_what_is_made() -> None:
    """Note pipelines and their parts as they are made: their common base registers their configurations."""
    module = sys.modules.get("diffusers.configuration_utils")
    if module is None or module.ConfigMixin in _watched:
        return
    base = module.ConfigMixin
    _watched.add(base)
    original = base.register_to_config

    def register_to_config(self: Any, **config: Any) -> None:
        _note(self)
        original(self, **config)

    base.register_to_config = register_to_config
    for thing in gc.get_objects():  # those made before, once in a session
        if issubclass(type(thing), base):
            _note(thing)


def _note(thing: Any) -> None:
    reference = weakref.ref(thing)
    _made[id(thing)] = reference
    _new.append(reference)


def found() -> list[str]:
    """What of ours is still installed, in words."""
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
    return [*found, *_marked_classes(), *_marked_instances()]


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


def _marked_instances() -> list[str]:
    """Attributes of living pipelines, models and schedulers that are ours; hooks of those just made."""
    found = []
    for identity, reference in list(_made.items()):
        thing = reference()
        if thing is None:
            del _made[identity]
            continue
        found += [f"{type(thing).__name__}().{name}" for name in _attributes_of_ours(thing)]
    for reference in _new:
        found += _hooks_of_ours(reference())
    _new.clear()
    return found


def _attributes_of_ours(thing: Any) -> Iterator[str]:
    for name, value in vars(thing).items():
        if "stepscope" in name or _is_ours(value):
            yield name


def _hooks_of_ours(thing: Any) -> Iterator[str]:
    torch = sys.modules["torch"]
    if not isinstance(thing, torch.nn.Module):
        return
    for path, module in thing.named_modules():
        yield from (f"{path}.{name}" for name in _attributes_of_ours(module))
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            yield from (f"{path}.{kind}" for hook in getattr(module, kind).values() if _is_ours(hook))


def _is_ours(value: Any) -> bool:
    """Whether a function, bound method or partial is one of ours."""
    function = getattr(value, "func", value)
    if not (inspect.isroutine(function) or inspect.isfunction(function)):
        return False
    module = getattr(function, "__module__", None) or ""
    return bool(getattr(function, "__stepscope_wrapper__", False)) or module.split(".")[0] == "stepscope"
