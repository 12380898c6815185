"""Which requests of a running engine are traced: a file that is looked at before each request.

A file and not a socket: every worker of every rank sees it, it outlives a worker that restarts, opens no port
and needs no thread. Looking at it costs one ``stat`` a request (some microseconds).
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from stepscope.capture.engines.fault_log import say
from stepscope.capture.tracing import TraceRequest
from stepscope.model.spool_layout import CONTROL, RAW

LARGEST_BYTES = 1 << 20
"""Thousands of request ids; more is no control file, and it is read in an engine's worker."""
Plain = TypeVar("Plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the file asks for; without a file, or with one that cannot be used, nothing is traced."""

    observe: bool = True
    every: bool = False
    next: int = 0
    request_ids: frozenset[str] = frozenset()
    steps: int = 5
    all_stages: bool = False


@dataclass(slots=True)
class Control:
    """Reads the file when it has changed and counts the requests it asked for.

    Never raises: what is wrong with the file costs the traces, not the observation, and is said in the log.
    """

    folder: Path
    _stamp: tuple[int, int] | None = None
    _asked: Asked = field(default_factory=Asked)
    _left: int = 0

    def wanted(self, request_id: str) -> TraceRequest | None:
        """How to trace this request; None: not at all."""
        self._read()
        if not self._chosen(request_id):
            return None
        return TraceRequest(
            steps=self._asked.steps, all_stages=self._asked.all_stages, scratch_dir=self.folder / RAW
        )

    def observes(self) -> bool:
        """Whether requests are observed at all: ``"observe": false`` switches a running engine to none."""
        self._read()
        return self._asked.observe

    def _chosen(self, request_id: str) -> bool:
        if self._asked.every or request_id in self._asked.request_ids:
            return True
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def _read(self) -> None:
        path = self.folder / CONTROL
        try:
            state = path.stat()
        except OSError:
            self._stamp, self._asked, self._left = None, Asked(), 0
            return
        stamp = (state.st_mtime_ns, state.st_ino)
        if stamp == self._stamp:
            return
        self._stamp, self._asked = stamp, Asked()
        try:
            if not stat.S_ISREG(state.st_mode) or state.st_size > LARGEST_BYTES:
                raise ValueError("it is no file, or one of more than a megabyte")  # noqa: TRY301
            self._asked = asked_in(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            say(self.folder, f"{CONTROL} cannot be used and nothing is traced: {error}")
        self._left = self._asked.next


def asked_in(content: bytes) -> Asked:
    """What a control file asks for. Raises ValueError for one that is none, RecursionError for a deep one."""
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__} and no object")  # noqa: TRY004  a file's content
    default = Asked()
    ids = _of(found, "request_ids", list, [])
    steps = _of(found, "steps", int, default.steps)
    if not all(isinstance(one, str) for one in ids) or not (steps == -1 or steps > 0):
        raise ValueError("request_ids are texts, steps are 1 or more or -1")
    return Asked(
        observe=_of(found, "observe", bool, default.observe),
        every=_of(found, "every", bool, default.every),
        next=_of(found, "next", int, default.next),
        request_ids=frozenset(ids),
        steps=steps,
        all_stages=_of(found, "all_stages", bool, default.all_stages),
    )


def _of(found: dict[str, Any], name: str, kind: type[Plain], default: Plain) -> Plain:
    value = found.get(name, default)
    if type(value) is not kind:
        raise ValueError(f"{name} is a {type(value).__name__} and no {kind.__name__}")
    return value
