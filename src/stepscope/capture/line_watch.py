"""Follows the lines of a user's code in one thread while a pipeline runs: slow, and exact.

``sys.settrace`` reports calls, lines and returns; only frames of a user's own files are followed line by
line, and of torch only the call of a module, for its path. Nothing is installed in modules and no mode is
on, so compiled code stays as it was compiled: a compiled function is one frame, at its first line.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from stepscope.model.source_files import is_user_file, short_path
from stepscope.model.source_map import LineLog
from stepscope.model.trace import SourceLine

_OURS = str(Path(__file__).parents[1]) + "/"
_NOWHERE = -1

Follow = Callable[[FrameType, str, Any], Any]


class LineWatch:
    """Notes lines from ``start`` to ``stop``, in the thread that calls both.

    Raises RuntimeError at ``start`` where a debugger or a coverage tool follows lines already.
    """

    def __init__(self, modules: Iterable[tuple[str, Any]]) -> None:
        self._paths = dict(module_paths(modules))
        self._at, self._source = array("q"), array("i")
        self._sources: list[SourceLine] = []
        self._index: dict[tuple[int, int, str | None], int] = {}
        self._codes: list[CodeType] = []  # kept alive: their ids are keys
        self._thread = 0

    def start(self) -> None:
        """Follow this thread from its next call on."""
        if sys.gettrace() is not None:
            message = "a debugger or a coverage tool follows the lines of this process"
            raise RuntimeError(message)
        self._thread = threading.get_native_id()
        sys.settrace(self._follower())

    def stop(self) -> LineLog:
        """Stop following and hand over what was noted."""
        sys.settrace(None)
        return LineLog(
            thread=self._thread,
            at_ns=np.array(self._at, np.int64),
            source=np.array(self._source, np.int32),
            sources=tuple(self._sources),
        )

    def _follower(self) -> Follow:
        """The trace function for calls, with what it needs at hand: it runs at every call in the process."""
        import torch

        module_call = torch.nn.Module.__call__.__code__
        paths, is_ours = self._paths, _user_file_test()
        lines: list[tuple[CodeType, int]] = []  # where each open user frame is
        modules: list[str | None] = [None]
        note_at, note_source, now = self._at.append, self._source.append, time.perf_counter_ns
        source_of = self._source_of

        def note() -> None:
            note_at(now())
            note_source(source_of(*lines[-1], modules[-1]) if lines else _NOWHERE)

        def in_user_code(frame: FrameType, event: str, _: Any) -> Follow:
            if event == "line":
                lines[-1] = (frame.f_code, frame.f_lineno)
            elif event == "return":
                lines.pop()
            else:
                return in_user_code
            note()
            return in_user_code

        def in_module_call(_frame: FrameType, event: str, _: Any) -> Follow:
            if event == "return":
                modules.pop()
                note()
            return in_module_call

        def at_call(frame: FrameType, _event: str, _: Any) -> Follow | None:
            code = frame.f_code
            if code is module_call:
                frame.f_trace_lines = False
                module = id(frame.f_locals.get("self"))
                modules.append(paths.get(module, modules[-1]))
                note()
                return in_module_call
            if not is_ours(code.co_filename):
                return None
            lines.append((code, frame.f_lineno))
            note()
            return in_user_code

        return at_call

    def _source_of(self, code: CodeType, line: int, module: str | None) -> int:
        key = (id(code), line, module)
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self._sources)
            self._codes.append(code)
            self._sources.append(source_line(code, line, module))
        return index


def source_line(code: CodeType, line: int, module: str | None) -> SourceLine:
    """The place in source; a compiled function stands for the whole of what was compiled: no exact line."""
    return SourceLine(
        file=short_path(code.co_filename),
        line=line,
        function=code.co_name,
        line_exact=line != code.co_firstlineno or code.co_name.startswith("<"),
        module_path=module,
    )


def module_paths(modules: Iterable[tuple[str, Any]]) -> Iterator[tuple[int, str]]:
    """``(id, path)`` of every module below the named ones, e.g. ``transformer.blocks.3.attn``."""
    for name, module in modules:
        for below, inner in module.named_modules():
            parts = [part for part in (*name.split("."), *below.split(".")) if part not in {"", "_orig_mod"}]
            yield id(inner), ".".join(parts)


def _user_file_test() -> Callable[[str], bool]:
    """``is_user_file``, once for each file, and never true for our own."""
    known: dict[str, bool] = {}

    def test(file: str) -> bool:
        found = known.get(file)
        if found is None:
            found = known[file] = is_user_file(file) and not file.startswith(_OURS)
        return found

    return test
