"""Whose code a Python file is: a pipeline's, a model's or a user's, or plumbing below it.

The file that somebody would edit is named as the source of GPU work: not torch's and triton's own, not the
standard library's, not ours, and nothing that is no file.
"""

from __future__ import annotations

import re
import sys

_PLUMBING = re.compile(
    r"(?:^|/(?:site|dist)-packages/)"
    r"(?:torch|torchgen|functorch|torch_npu|triton|stepscope|nvtx|tqdm)/"
)
_GENERATED = re.compile(r"^<|/torchinductor_[^/]*/|/\.triton/cache/")
_STANDARD_LIBRARY = re.compile(r"^(?:.*/lib/python3\.\d+/)?(?P<module>\w+)(?:/|\.py$)")
_ALSO_SCRIPT_NAMES = frozenset(("test", "this", "cmd", "code", "profile", "site", "trace"))
"""Standard modules whose names people give to scripts of their own."""

_STANDARD = frozenset(sys.stdlib_module_names) - _ALSO_SCRIPT_NAMES
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_IN_LIBRARY = re.compile(r"^.*/lib/python3\.\d+/")


def is_user_file(file: str) -> bool:
    """Whether a file, as a path or shortened by a recorder, is a pipeline's, a model's or a user's."""
    if not is_file(file) or _PLUMBING.search(file):
        return False
    if "-packages/" in file:
        return True
    module = _STANDARD_LIBRARY.match(file)
    return module is None or module["module"] not in _STANDARD


def is_file(file: str) -> bool:
    """Whether this names source text at all; what torch.compile has generated is none that anybody wrote."""
    return not _GENERATED.search(file)


def short_path(file: str) -> str:
    """The path below ``site-packages``, as the profiler's own frames have it; another one as it is."""
    return _IN_LIBRARY.sub("", _PACKAGES.sub("", file))
