"""What pipelines call their forwards: diffusers tells its caches (``cond``, ``uncond``), and we listen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from stepscope.capture.active import ACTIVE
from stepscope.capture.wrapping import Wrappers


def watch_labels(wrappers: Wrappers) -> None:
    """Wrap ``cache_context``, in which diffusers pipelines make each forward."""
    module = sys.modules.get("diffusers.models.cache_utils")
    if module is not None:
        wrappers.wrap(module.CacheMixin, "cache_context", _make_labelled)


def _make_labelled(
    original: Callable[..., Any], _attribute: str
) -> Callable[..., AbstractContextManager[Any]]:
    @contextmanager
    def labelled(self: Any, name: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        call = ACTIVE.get()
        with original(self, name, *args, **kwargs) as value:
            if call is None:
                yield value
                return
            before = call.tell_label(name)
            try:
                with nullcontext() if call.ranges is None else call.ranges.labelled(name):
                    yield value
            finally:
                call.tell_label(before)

    return labelled
