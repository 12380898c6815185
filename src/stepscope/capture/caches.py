"""Step caches of diffusers, watched from outside: which parts of a denoiser they let compute.

A cache puts a hook on each part that it may skip; the hook asks its function reference for the original
forward when it computes, and does not when it takes the cached result. That reference is what is wrapped, on
denoisers that have such hooks and nowhere else: uncached runs pay nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stepscope.capture.active import ACTIVE, CacheUnits, Ran, batch_of
from stepscope.capture.engaged import compiled_modules
from stepscope.capture.wrapping import Wrappers

CACHE_MODULES = frozenset(
    {
        "first_block_cache",
        "mag_cache",
        "taylorseer_cache",
        "faster_cache",
        "pyramid_attention_broadcast",
        "sea_cache",
    }
)
"""The files of ``diffusers.hooks`` whose hooks skip work (0.42.1)."""


def watch_caches(denoisers: Iterable[tuple[str, Any]], wrappers: Wrappers) -> dict[str, CacheUnits]:
    """Watch the step caches of these denoisers; what each of them may skip, by the denoiser's name.

    Compiled denoisers are left alone: a wrapper inside their graphs would be compiled again.
    """
    if "diffusers.hooks.hooks" not in sys.modules:
        return {}
    found = {}
    for name, denoiser in denoisers:
        hooked = list(_hooked(denoiser))
        if not hooked or compiled_modules([denoiser]):
            continue
        for path, reference in hooked:
            wrappers.wrap(reference, "original_forward", _maker(name, whole=path == ""))
        paths = [path for path, _ in hooked if path]
        if paths:
            found[name] = CacheUnits(count=len(paths), blocks=any(_is_block(path) for path in paths))
    return found


def _hooked(denoiser: Any) -> Iterator[tuple[str, Any]]:
    """``(path, function reference)`` of each part with a cache's hook; the denoiser's own path is empty."""
    for path, module in getattr(denoiser, "_orig_mod", denoiser).named_modules():
        registry = vars(module).get("_diffusers_hook")
        for hook in () if registry is None else registry.hooks.values():
            reference = getattr(hook, "fn_ref", None)
            cached = type(hook).__module__.rpartition(".")[2] in CACHE_MODULES
            if cached and getattr(reference, "original_forward", None) is not None:
                yield path, reference


def _is_block(path: str) -> bool:
    """Whether this is one of the denoiser's repeated blocks: ``transformer_blocks.3``, not a part of it."""
    container, _, index = path.rpartition(".")
    return index.isdigit() and "." not in container


def _maker(component: str, *, whole: bool) -> Callable[[Callable[..., Any], str], Callable[..., Any]]:
    def make(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
        def observed(*args: Any, **kwargs: Any) -> Any:
            call = ACTIVE.get()
            if call is not None:
                call.note_computed(Ran(component, batch_of(args, kwargs)) if whole else Ran(component))
            return original(*args, **kwargs)

        return observed

    return make
