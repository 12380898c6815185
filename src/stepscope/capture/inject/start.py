"""What happens in an observed process: engines are watched for, and wrapped when they are imported.

Most processes below a command import no engine (a shell's helpers, compilers, the client of another library).
They pay for an import hook and nothing else: no record format, no numpy, which would read its environment
variables before the program has set them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType

from stepscope.capture.engines.adapters import ADAPTERS, adapter_of
from stepscope.capture.engines.fault_log import say
from stepscope.capture.inject.post_import import PostImport
from stepscope.capture.inject.settings import spool_folder
from stepscope.model.spool_layout import PROCESSES

_watching: list[PostImport] = []


def start() -> None:
    """Start in this process; the second call (SGLang's plugin group after sitecustomize) does nothing.

    Raises OSError if the folder cannot be made; the caller logs it.
    """
    folder = spool_folder()
    if folder is None or _watching:
        return
    (folder / PROCESSES).mkdir(parents=True, exist_ok=True)
    watch = PostImport(frozenset(ADAPTERS), functools.partial(_observe, folder))
    _watching.append(watch)
    watch.install()


def _observe(folder: Path, package: ModuleType) -> None:
    """Watch for the hook points of an engine that was just imported; never raises."""
    try:
        from stepscope.capture.engines.hooks import Hooks
        from stepscope.capture.engines.spool import open_spool

        hooks = Hooks(adapter_of(package.__name__), open_spool(folder))
        PostImport(hooks.modules, hooks.imported).install()
    except Exception as error:
        say(folder, f"{package.__name__} is not observed: {type(error).__name__}: {error}")
