"""What happens in an observed process: engines are watched for, and wrapped when they are imported."""

from __future__ import annotations

import os

from stepscope.capture.engines.adapters import ADAPTERS
from stepscope.capture.engines.hooks import Hooks
from stepscope.capture.engines.spool import Spool, set_spool
from stepscope.capture.inject.post_import import PostImport
from stepscope.capture.inject.settings import spool_folder


def start() -> None:
    """Start in this process; the second call (SGLang's plugin group after sitecustomize) does nothing.

    Raises OSError if the folder cannot be made; the caller logs it.
    """
    folder = spool_folder()
    if folder is None:
        return
    spool = Spool(folder)
    if not set_spool(spool):
        return
    os.register_at_fork(after_in_child=spool.after_fork)
    hooks = Hooks(ADAPTERS, spool)
    PostImport(hooks.modules, hooks.imported).install()
