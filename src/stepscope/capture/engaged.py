"""What was at work in a pipeline, as against what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def compiled_modules(modules: Iterable[Any]) -> int:
    """Modules under torch.compile, compiled in place or wrapped; the inner ones of such are not counted."""
    count = 0
    for module in modules:
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            count += 1
            continue
        count += compiled_modules(module.children())
    return count


def attention_backend(modules: Iterable[Any]) -> str | None:
    """The backend that diffusers' dispatcher has for these denoisers, or the class that computes attention.

    Which kernel torch's own scaled_dot_product_attention takes ("native") shows only in a trace.
    """
    dispatch = sys.modules.get("diffusers.models.attention_dispatch")
    if dispatch is None:
        return None
    chosen = set()
    for module in modules:
        for inner in module.modules():
            processor = getattr(inner, "processor", None)
            if processor is None:
                continue
            if hasattr(type(processor), "_attention_backend"):
                chosen.add(_name(processor._attention_backend or _active_backend(dispatch)))
            elif "Attn" in type(processor).__name__:
                chosen.add(type(processor).__name__)
    chosen.discard("")
    return ", ".join(sorted(chosen)) or None


def _active_backend(dispatch: Any) -> Any:
    registry = getattr(dispatch, "_AttentionBackendRegistry", None)
    active = registry.get_active_backend() if registry is not None else ""
    return active[0] if isinstance(active, tuple) else active


def _name(backend: Any) -> str:
    return str(getattr(backend, "value", backend) or "")
