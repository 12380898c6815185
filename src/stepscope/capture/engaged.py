"""What was at work in a pipeline, as against what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Attributes = dict[str, Any]
"""A torch module's own: its submodules lie in one of them, ``_modules``."""


def compiled_modules(modules: Iterable[Any]) -> int:
    """Modules under torch.compile, compiled in place or wrapped; the inner ones of such are not counted."""
    return sum(1 for attributes in _inside(modules, stop=_is_compiled) if _is_compiled(attributes))


def _is_compiled(attributes: Attributes) -> bool:
    return "_orig_mod" in _children(attributes) or attributes.get("_compiled_call_impl") is not None


def attention_backend(modules: Iterable[Any]) -> str | None:
    """The backend that diffusers' dispatcher has for these denoisers, or the class that computes attention.

    Which kernel torch's own scaled_dot_product_attention takes ("native") shows only in a trace.
    """
    dispatch = sys.modules.get("diffusers.models.attention_dispatch")
    if dispatch is None:
        return None
    chosen = set()
    for attributes in _inside(modules):
        children = _children(attributes)  # an IP-adapter's processor is a module
        processor = children["processor"] if "processor" in children else attributes.get("processor")
        if processor is None:
            continue
        if hasattr(type(processor), "_attention_backend"):
            chosen.add(_name(processor._attention_backend or _active_backend(dispatch)))
        elif "Attn" in type(processor).__name__:
            chosen.add(type(processor).__name__)
    chosen.discard("")
    return ", ".join(sorted(chosen)) or None


def _inside(modules: Iterable[Any], stop: Callable[[Attributes], bool] | None = None) -> Iterator[Attributes]:
    """The attributes of torch modules and of those in them, but for those in one that ``stop`` says.

    They are read past ``torch.nn.Module.__getattr__``, which takes microseconds to say that there is no such
    one: a pipeline has thousands of modules and is looked through at the end of every call. A module that
    two others hold is looked into once.
    """
    seen: set[int] = set()
    left = list(modules)
    while left:
        module = left.pop()
        attributes = _attributes(module)
        if attributes is None:
            continue
        yield attributes
        children = _children(attributes)
        if children and id(module) not in seen and not (stop is not None and stop(attributes)):
            seen.add(id(module))
            left.extend(children.values())


def _attributes(module: Any) -> Attributes | None:
    """None where an optional module is not there, or does not let itself be looked at."""
    try:
        return module.__dict__ if module is not None else None
    except Exception:
        return None


def _children(attributes: Attributes) -> Any:
    """The modules in one; a traced one (torch.jit.trace) or one that is not initialised has none here."""
    return attributes.get("_modules") or {}


def _active_backend(dispatch: Any) -> Any:
    registry = getattr(dispatch, "_AttentionBackendRegistry", None)
    active = registry.get_active_backend() if registry is not None else ""
    return active[0] if isinstance(active, tuple) else active


def _name(backend: Any) -> str:
    return str(getattr(backend, "value", backend) or "")
