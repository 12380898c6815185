"""Keys that occur twice in one event: JSON readers keep the last value and say nothing.

Looking at every key of every event would cost more than reading them. The first events are looked at whole,
as a recorder that repeats keys does it throughout; of later ones only whether there are more times than
events.
"""

from __future__ import annotations

import json
from typing import Any

from stepscope.record.kineto.event import BOUNDARY
from stepscope.record.reader_warnings import WarningLog

_SAMPLE_BYTES = 1 << 15
_WHOLE_STRETCHES = 4  # of those with too many times, looked at whole: their arguments may hold a "ts" too
_START_KEY = b'"ts"'


class RepeatedKeys:
    """Notes keys that are given twice, stretch by stretch."""

    def __init__(self, log: WarningLog) -> None:
        self._log = log
        self._is_first = True
        self._whole_left = _WHOLE_STRETCHES

    def look_at(self, stretch: bytes, event_count: int) -> None:
        """A stretch of comma-separated events of which ``event_count`` could be read."""
        suspicious = stretch.count(_START_KEY) > event_count and self._whole_left > 0
        self._whole_left -= suspicious
        if suspicious or self._is_first:
            self._check(stretch if suspicious else _whole_events(stretch[:_SAMPLE_BYTES]))
        self._is_first = False

    def _check(self, events: bytes) -> None:
        def count(pairs: list[tuple[str, Any]]) -> None:
            repeated = len(pairs) - len({key for key, _ in pairs})
            self._log.add("duplicate_key", "a key occurs twice in an event; its last value counts", repeated)

        try:
            json.loads(b"[%b]" % events, strict=False, object_pairs_hook=count)
        except (ValueError, RecursionError):
            return  # malformed: told already


def _whole_events(sample: bytes) -> bytes:
    """A sample up to its last boundary between events; all of it where it has none."""
    ends = [found.start(1) for found in BOUNDARY.finditer(sample)]
    return sample[: ends[-1]] if ends else sample
