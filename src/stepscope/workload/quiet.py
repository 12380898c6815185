"""Keep diffusers and transformers from talking while a model is built in code.

What they warn about then (no torchvision, no checkpoint) is not the user's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Only errors of both libraries inside; their verbosity is put back."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    before = [(library, library.get_verbosity()) for library in (diffusers_logging, transformers_logging)]
    for library, _ in before:
        library.set_verbosity_error()
    try:
        yield
    finally:
        for library, verbosity in before:
            library.set_verbosity(verbosity)
