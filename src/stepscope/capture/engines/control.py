"""Which requests of a running engine are traced: a file that is looked at before each request.

A file and not a socket: every worker of every rank sees it, it outlives a worker that restarts, opens no port
and needs no thread. Looking at it costs one ``stat`` a request (some microseconds).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.capture.tracing import TraceRequest
from stepscope.model.spool_layout import CONTROL

RAW = "raw"


@dataclass(slots=True)
class Control:
    """Reads the file when it has changed and counts the requests it asked for."""

    folder: Path
    _stamp: tuple[int, int] | None = None
    _asked: dict[str, Any] | None = None
    _left: int = 0

    def wanted(self, request_id: str) -> TraceRequest | None:
        """How to trace this request; None: not at all. Raises ValueError for a file that is no JSON."""
        self._read()
        asked = self._asked
        if asked is None or not (self._chosen(asked, request_id)):
            return None
        return TraceRequest(
            steps=int(asked.get("steps", 5)),
            all_stages=bool(asked.get("all_stages", False)),
            scratch_dir=self.folder / RAW,
        )

    def observes(self) -> bool:
        """Whether requests are observed at all: ``"observe": false`` switches a running engine to none."""
        self._read()
        return self._asked is None or bool(self._asked.get("observe", True))

    def _chosen(self, asked: dict[str, Any], request_id: str) -> bool:
        if asked.get("every"):
            return True
        if request_id in asked.get("request_ids", ()):
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
            self._stamp = self._asked = None
            self._left = 0
            return
        stamp = (state.st_mtime_ns, state.st_ino)
        if stamp == self._stamp:
            return
        self._stamp, self._asked, self._left = stamp, None, 0
        asked = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(asked, dict):
            self._asked = asked
            self._left = int(asked.get("next", 0))
