"""Putting back what a warm-up changes: random number generators and the state of a pipeline's parts."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stepscope.capture.components import components_of, is_pipeline, is_scheduler

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
Restore = Callable[[], None]


@contextmanager
def preserved_state(pipeline: Any) -> Iterator[None]:
    """Run a warm-up inside: afterwards global random state and stateful parts are as before.

    Covers Python's, numpy's and torch's generators (on every device) and the attributes of schedulers and of
    the pipeline itself. Step caches reset themselves at the end of each call.
    """
    restores = [_python_random(), *_numpy_random(), *_torch_random(), *_parts(pipeline)]
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _python_random() -> Restore:
    state = random.getstate()
    return lambda: random.setstate(state)


def _numpy_random() -> Iterator[Restore]:
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        yield lambda: numpy.random.set_state(state)


def _torch_random() -> Iterator[Restore]:
    import torch

    state = torch.get_rng_state()
    yield lambda: torch.set_rng_state(state)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        cuda = torch.cuda.get_rng_state_all()
        yield lambda: torch.cuda.set_rng_state_all(cuda)
    if torch.xpu.is_available():
        xpu = torch.xpu.get_rng_state_all()
        yield lambda: torch.xpu.set_rng_state_all(xpu)
    if torch.backends.mps.is_available():
        mps = torch.mps.get_rng_state()
        yield lambda: torch.mps.set_rng_state(mps)


def _parts(pipeline: Any) -> Iterator[Restore]:
    yield _attributes(pipeline, plain_only=True)
    for _, part in components_of(pipeline):
        if is_pipeline(part):
            yield _attributes(part, plain_only=True)
        elif is_scheduler(part):
            yield _attributes(part, plain_only=False)


def _attributes(instance: Any, *, plain_only: bool) -> Restore:
    """Remember an object's own attributes; values that can change in place are remembered by content.

    With ``plain_only`` new attributes that hold something else (a lazily built part) stay.
    """
    attributes = vars(instance)
    before = {name: (value, _content(value)) for name, value in attributes.items()}

    def restore() -> None:
        for name in [name for name in attributes if name not in before]:
            if not plain_only or isinstance(attributes[name], _PLAIN):
                del attributes[name]
        for name, (value, content) in before.items():
            if not plain_only or isinstance(value, _PLAIN):
                attributes[name] = value
                content()

    return restore


def _content(value: Any) -> Restore:
    """How to put a value's content back into the same object."""
    if isinstance(value, list):
        items = list(value)
        return lambda: value.__setitem__(slice(None), items)
    if type(value) is dict:
        pairs = dict(value)

        def put_back() -> None:
            value.clear()
            value.update(pairs)

        return put_back
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and not value.is_inference():
        version, copy = value._version, value.detach().clone()

        def copy_back() -> None:
            if value._version != version:
                value.copy_(copy)

        return copy_back
    return lambda: None
