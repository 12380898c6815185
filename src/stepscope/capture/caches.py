"""Step caches in a live call: how many transformer blocks each forward computed, and what the cache says.

Nothing is installed where no cache is mounted. Where one is, a part of each block that is not one of torch's
own layers (the attention, as a rule) is counted: a cache skips the inside of a block, whoever calls it.
Caches that replace the attention alone show in diffusers' hooks: a hook that computes asks its function
reference for the original forward, one that takes the cached result does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stepscope.capture.active import ACTIVE, ActiveCall, batch_of
from stepscope.capture.engaged import compiled_modules
from stepscope.capture.wrapping import Wrappers
from stepscope.model.recording import CachedForward

CACHE_DIT = "cache-dit"
DIFFUSERS_HOOKS = {
    "fbc_leader_block_hook": "FirstBlockCache",
    "mag_cache_leader_block_hook": "MagCache",
    "sea_cache_leader_block": "SeaCache",
    "faster_cache_denoiser": "FasterCache",
    "faster_cache_block": "FasterCache",
    "pyramid_attention_broadcast": "PyramidAttentionBroadcast",
    "taylorseer_cache": "TaylorSeer",
}
"""Names under which diffusers (0.36 to 0.42) registers the hooks of its step caches."""

SKIPPING_HOOKS = frozenset(
    {
        "faster_cache",
        "first_block_cache",
        "mag_cache",
        "pyramid_attention_broadcast",
        "sea_cache",
        "taylorseer_cache",
    }
)
"""The files of ``diffusers.hooks`` whose hooks leave out work (0.42.1)."""


class CacheWatch:
    """Follows the forwards of one call's denoisers that have a step cache mounted."""

    def __init__(self, call: ActiveCall) -> None:
        self._call = call
        self._wrappers = Wrappers()
        self._modules: list[tuple[Any, str]] | None = None  # None: not looked yet
        self._counted: dict[int, int] = {}  # id of what is counted -> how often in this forward
        self._hooked: dict[int, int] = {}  # the same for what diffusers' hooks may skip
        self._batches: dict[int, int] = {}  # id of a whole denoiser's hook -> largest batch it has computed
        self._reduced = False
        self._depth = 0
        self._said = 0
        self.forwards: list[CachedForward] = []
        call.forward_watch = self

    @property
    def cache(self) -> str | None:
        """Which caches are mounted."""
        return ", ".join(sorted({name for _, name in self._modules or ()})) or None

    def _look(self) -> None:
        """At the first forward: an engine may mount a cache in the call itself."""
        denoisers = self._call.denoisers()
        self._modules = [(module, name) for module in denoisers if (name := cache_of(module))]
        for module, _ in self._modules:
            for part in counted_parts(module):
                self._counted[id(part)] = 0
                self._wrappers.wrap(type(part), "__call__", _make_counter)
            for path, reference in () if compiled_modules([module]) else hooked_parts(module):
                if path:
                    self._hooked[id(reference)] = 0
                self._wrappers.wrap(reference, "original_forward", _make_hook_counter(reference))

    def count(self, part: Any) -> None:
        """A part of a block is at work."""
        if id(part) in self._counted:
            self._counted[id(part)] += 1

    def count_hooked(self, reference: Any, batch: int | None) -> None:
        """A hook lets its part, or the whole denoiser, compute."""
        if id(reference) in self._hooked:
            self._hooked[id(reference)] += 1
        elif batch is not None:
            largest = self._batches[id(reference)] = max(batch, self._batches.get(id(reference), 0))
            self._reduced |= batch < largest

    def begin(self) -> None:
        """A forward begins; one inside another is the same."""
        if self._modules is None:
            self._look()
        if not self._modules:
            self._call.forward_watch = None
            return
        self._depth += 1
        if self._depth == 1:
            self._said = self._hits()
            self._counted = dict.fromkeys(self._counted, 0)
            self._hooked = dict.fromkeys(self._hooked, 0)
            self._reduced = False

    def end(self) -> None:
        """It has ended."""
        self._depth -= 1
        if self._depth == 0:
            computed = sum(count > 0 for count in self._counted.values())
            self.forwards.append(
                CachedForward(
                    blocks=computed,
                    of_blocks=len(self._counted),
                    cached=self._cached(),
                    parts=sum(count > 0 for count in self._hooked.values()),
                    of_parts=len(self._hooked),
                    reduced=self._reduced,
                )
            )

    def close(self) -> None:
        """Take the counters away."""
        self._call.forward_watch = None
        self._wrappers.remove()

    def _hits(self) -> int:
        return sum(hits for module, _ in self._modules or () for hits in cache_dit_hits(module))

    def _cached(self) -> bool | None:
        if any(name == CACHE_DIT for _, name in self._modules or ()):
            return self._hits() > self._said
        told = [computes for module, _ in self._modules or () for computes in diffusers_decisions(module)]
        return None if not told else not all(told)


def cache_of(module: Any) -> str | None:
    """The step cache mounted on a denoiser, by cache-dit's or diffusers' own marks."""
    if getattr(module, "_context_manager", None) is not None:
        return CACHE_DIT
    for inner in module.modules():
        registry = vars(inner).get("_diffusers_hook")  # past the slow __getattr__ of modules
        if registry is not None:
            named = next((DIFFUSERS_HOOKS[hook] for hook in registry.hooks if hook in DIFFUSERS_HOOKS), None)
            if named is not None:
                return named
    return None


def hooked_parts(module: Any) -> Iterator[tuple[str, Any]]:
    """``(path, function reference)`` of each part that a hook may skip; the denoiser's own path is empty."""
    for path, inner in module.named_modules():
        registry = vars(inner).get("_diffusers_hook")
        for hook in getattr(registry, "hooks", {}).values():
            reference = getattr(hook, "fn_ref", None)
            skips = type(hook).__module__.rpartition(".")[2] in SKIPPING_HOOKS
            if skips and getattr(reference, "original_forward", None) is not None:
                yield path, reference


def counted_parts(module: Any) -> Iterator[Any]:
    """One part of each repeated block: its first child that is not a layer of torch's own."""
    for _, children in module.named_children():
        if type(children).__name__ != "ModuleList":
            continue
        for block in _unwrapped(children):
            part = next((part for part in block.children() if not _of_torch(part)), None)
            if part is not None:
                yield part


def _unwrapped(children: Any) -> Iterator[Any]:
    """Blocks; cache-dit may put an object that holds the blocks in their place."""
    for block in children:
        held = getattr(block, "transformer_blocks", None)
        yield from held if held is not None else (block,)


def _of_torch(part: Any) -> bool:
    return type(part).__module__.startswith("torch.nn.")


def cache_dit_hits(module: Any) -> Iterator[int]:
    """Cached steps so far by cache-dit's own contexts, guidance's two branches apart."""
    manager = getattr(module, "_context_manager", None)
    contexts = getattr(manager, "_cached_context_manager", {})
    for context in contexts.values():
        yield len(context.cached_steps) + len(context.cfg_cached_steps)


def diffusers_decisions(module: Any) -> Iterator[bool]:
    """What the shared states of diffusers' caches say: whether the rest of the blocks is computed."""
    for inner in module.modules():
        registry = vars(inner).get("_diffusers_hook")  # past the slow __getattr__ of modules
        for hook in getattr(registry, "hooks", {}).values():
            manager = getattr(hook, "state_manager", None)
            if manager is None or getattr(manager, "_context", None) is None:
                continue
            computes = getattr(manager.get_state(), "should_compute", None)
            if isinstance(computes, bool):
                yield computes
                return


def _make_counter(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
    import torch

    is_compiling = torch.compiler.is_compiling

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        call = ACTIVE.get()
        if call is not None and call.forward_watch is not None:
            call.forward_watch.count(self)
        return original(self, *args, **kwargs)

    return counted


def _make_hook_counter(reference: Any) -> Callable[[Callable[..., Any], str], Callable[..., Any]]:
    def make(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
        def computing(*args: Any, **kwargs: Any) -> Any:
            call = ACTIVE.get()
            if call is not None and call.forward_watch is not None:
                call.forward_watch.count_hooked(reference, batch_of(args, kwargs))
            return original(*args, **kwargs)

        return computing

    return make
