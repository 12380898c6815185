"""Keep diffusers, transformers and the hub from talking while a model is loaded.

What they warn about then (no torchvision, no network) is nothing to act on, or our own errors tell it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Only errors of the libraries inside, and no progress bars unless a person watches; all is put back.

    Of diffusers not even those: it calls it an error that weights are in ``.bin`` files, and reads them.
    """
    from diffusers.utils import logging as diffusers_logging
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging as transformers_logging

    with ExitStack() as after:
        for library in (diffusers_logging, transformers_logging):
            after.callback(library.set_verbosity, library.get_verbosity())
            library.set_verbosity(logging.CRITICAL if library is diffusers_logging else logging.ERROR)
            if not sys.stderr.isatty() and library.is_progress_bar_enabled():
                after.callback(library.enable_progress_bar)
                library.disable_progress_bar()
        if not sys.stderr.isatty() and not are_progress_bars_disabled():
            after.callback(enable_progress_bars)
            disable_progress_bars()
        yield
