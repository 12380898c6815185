"""Which Python frame is named as the source of GPU work.

The innermost frame whose code somebody would edit: not torch's and triton's own, not the standard library's,
not ours, no built-in and no module frame. Kineto gives the line where a function is defined, not the line
that called: ``line_exact`` is False for it.
"""

from __future__ import annotations

import re
import sys

from stepscope.analyse.results import Source
from stepscope.analyse.trace.marks import parse_frame

_PLUMBING = re.compile(
    r"(?:^|/(?:site|dist)-packages/)"
    r"(?:torch|torchgen|functorch|torch_npu|triton|stepscope|nvtx|tqdm)/"
)
_NOT_A_FILE = re.compile(r"^<")
_STANDARD_LIBRARY = re.compile(r"^(?:.*/lib/python3\.\d+/)?(?P<module>\w+)(?:/|\.py$)")
_ALSO_SCRIPT_NAMES = frozenset(("test", "this", "cmd", "code", "profile", "site", "trace"))
"""Standard modules whose names people give to scripts of their own."""

_STANDARD = frozenset(sys.stdlib_module_names) - _ALSO_SCRIPT_NAMES

MODULE_PREFIX = "nn.Module: "
"""How torch names the frame of a module's call: the prefix, the class and its number of that class."""

_MODULE_NUMBER = re.compile(r"_\d+$")


def is_user_frame(name: str) -> bool:
    """Whether a frame's code is a pipeline's, a model's or a user's, rather than plumbing below it."""
    frame = parse_frame(name)
    if frame is None or _NOT_A_FILE.match(frame.file) or _PLUMBING.search(frame.file):
        return False
    if "-packages/" in frame.file:
        return True
    module = _STANDARD_LIBRARY.match(frame.file)
    return module is None or module["module"] not in _STANDARD


def is_python_frame(name: str) -> bool:
    """Whether a frame names a file at all."""
    frame = parse_frame(name)
    return frame is not None and not _NOT_A_FILE.match(frame.file)


def is_module_frame(name: str) -> bool:
    """Whether a frame is the call of an ``nn.Module``."""
    return name.startswith(MODULE_PREFIX)


def module_class(name: str) -> str:
    """The class of a module frame; torch appends the number of the instance."""
    return _MODULE_NUMBER.sub("", name.removeprefix(MODULE_PREFIX))


def frame_source(name: str, module_path: str | None) -> Source | None:
    """The source that a frame's name gives; None for a frame without a file."""
    frame = parse_frame(name)
    if frame is None:
        return None
    return Source(
        file=frame.file, line=frame.line, line_exact=False, function=frame.function, module_path=module_path
    )
