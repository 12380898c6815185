"""Moves events to tracks of their own where they would overlap others without nesting in them.

Two kinds do in what the profiler exports: work that overlaps on a stream, and named ranges in threads with
Python frames (a range begins inside the frame of its own ``__enter__`` and outlives it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stepscope.record.trace_writing.overlap_lanes import LANE, overlap_lanes
from stepscope.record.trace_writing.raw_export import Event
from stepscope.record.trace_writing.trace_window import ANNOTATION, Survey

ANNOTATION_TRACK = 1_800_000_000
"""First thread id of these tracks: above any real one, below those of our own spans."""


class Retrack:
    """Knows which events of an export are moved, and where to."""

    def __init__(self, survey: Survey) -> None:
        device, stream, start_ns = (
            survey.activity_device,
            survey.activity_stream,
            survey.activity_start_ns,
        )
        lanes = overlap_lanes(device, stream, start_ns, survey.activity_end_ns)
        rows = lanes.nonzero()[0]
        places = zip(device[rows].tolist(), stream[rows].tolist(), start_ns[rows].tolist(), strict=True)
        self._moved = dict(zip(places, (stream[rows] + LANE * lanes[rows]).tolist(), strict=True))
        self._tracks = {
            thread: ANNOTATION_TRACK + at for at, thread in enumerate(sorted(survey.stack_threads))
        }
        self._process = survey.process

    def moved(self, raw: bytes, event: Event) -> bytes:
        """The event's bytes with its new track, or as they are."""
        if event.cat == ANNOTATION:
            track = self._tracks.get(event.tid) if isinstance(event.tid, int) else None
            return raw if track is None else _with(raw, track, {"tid": event.tid})
        if not self._moved or event.ph not in "Xf":
            return raw
        track = self._moved.get((event.pid, event.tid, event.start_ns))
        return raw if track is None else _with(raw, track, {} if event.ph == "f" else {"stream": event.tid})

    def metadata(self) -> Iterator[bytes]:
        """Names of the new tracks."""
        streams = sorted({(device, track) for (device, _, _), track in self._moved.items()})
        names = [
            (self._process, track, f"named ranges of thread {thread}")
            for thread, track in self._tracks.items()
        ]
        names += [
            (device, track, f"stream {track % LANE}, overlapping ({track // LANE})")
            for device, track in streams
        ]
        for process, track, name in names:
            event = {"ph": "M", "name": "thread_name", "ts": 0, "pid": process, "tid": track}
            yield msgspec.json.encode(event | {"args": {"name": name}})


def _with(raw: bytes, track: int, arguments: dict[str, Any]) -> bytes:
    fields = msgspec.json.decode(raw, type=dict[str, Any])
    if arguments:
        fields["args"] = (fields.get("args") or {}) | arguments
    return msgspec.json.encode(fields | {"tid": track})
