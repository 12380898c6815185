"""Which Python frame is named as the source of GPU work.

The innermost frame whose code somebody would edit: not torch's and triton's own, not the standard library's,
not ours, no built-in and no module frame. Kineto gives the line where a function is defined, not the line
that called: ``line_exact`` is False for it.
"""

from __future__ import annotations

import re

from stepscope.analyse.results import Source
from stepscope.analyse.trace.marks import parse_frame
from stepscope.model.source_files import is_file, is_user_file

MODULE_PREFIX = "nn.Module: "
"""How torch names the frame of a module's call: the prefix, the class and its number of that class."""

_MODULE_NUMBER = re.compile(r"_\d+$")


def is_user_frame(name: str) -> bool:
    """Whether a frame's code is a pipeline's, a model's or a user's, rather than plumbing below it."""
    frame = parse_frame(name)
    return frame is not None and is_user_file(frame.file)


def is_python_frame(name: str) -> bool:
    """Whether a frame names a file at all."""
    frame = parse_frame(name)
    return frame is not None and is_file(frame.file)


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
