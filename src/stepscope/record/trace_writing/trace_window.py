"""What of a raw export belongs to the window: host events by their start, device events by their launch."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.record.trace_writing.raw_export import Event, Part, decode_event, decode_keys, split_export

I64 = NDArray[np.int64]

DEVICE_ACTIVITIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of work on a device; they make up the device spans."""
DEVICE_CATEGORIES = DEVICE_ACTIVITIES | {"cuda_sync", "cuda_event"}
DEVICE_ANNOTATION = "gpu_user_annotation"
OVERLAPPING_CATEGORIES = frozenset({"python_function", "user_annotation", "Trace"})
"""Categories that may begin before the window and reach into it: kept, and clipped to it."""
FRAME, ANNOTATION = "python_function", "user_annotation"
HOST_CATEGORIES = frozenset({"cpu_op", FRAME, ANNOTATION})
ANCHOR = "stepscope_anchor"
"""An empty annotation that the capture opens at a known host time; not written on."""
FLOW_PHASES = frozenset({"s", "t", "f"})


@dataclass(frozen=True, slots=True)
class Intervals:
    """Sorted, disjoint, half-open intervals in ns."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @staticmethod
    def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
        """Merge intervals that touch or overlap; empty ones vanish."""
        merged: list[list[int]] = []
        for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        return Intervals(tuple(start for start, _ in merged), tuple(end for _, end in merged))

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Start and end of each, in order."""
        return zip(self.starts, self.ends, strict=True)

    def holds(self, at_ns: int) -> bool:
        """Whether a moment lies in one of the intervals."""
        place = bisect_right(self.starts, at_ns) - 1
        return place >= 0 and at_ns < self.ends[place]

    def moved(self, by_ns: int) -> Intervals:
        """The same intervals at another time."""
        return Intervals(tuple(at + by_ns for at in self.starts), tuple(at + by_ns for at in self.ends))

    def clip(self, start_ns: int, end_ns: int) -> list[tuple[int, int]]:
        """The parts of ``[start_ns, end_ns)`` that lie inside, in order."""
        first = max(0, bisect_right(self.starts, start_ns) - 1)
        parts = []
        for start, end in zip(self.starts[first:], self.ends[first:], strict=True):
            if start >= end_ns:
                break
            low, high = max(start, start_ns), min(end, end_ns)
            if high > low:
                parts.append((low, high))
        return parts


@dataclass(frozen=True, slots=True)
class TraceClock:
    """From the recording process's ``perf_counter_ns`` to the trace's own ns, by points known on both.

    Between two points the offset is interpolated, outside of them the nearest is taken.
    """

    host_ns: I64
    offset_ns: I64

    @staticmethod
    def from_points(points: Iterable[tuple[int, int]]) -> TraceClock:
        """From (host ns, trace ns) pairs, at least one, in any order."""
        host, trace = np.array(sorted(points), dtype=np.int64).T
        return TraceClock(host, trace - host)

    def at(self, host_ns: int) -> int:
        """Trace time of a host time. The interpolated part is a few microseconds, so float64 is exact."""
        place = int(np.clip(np.searchsorted(self.host_ns, host_ns) - 1, 0, max(0, len(self.host_ns) - 2)))
        low = int(self.offset_ns[place])
        if len(self.host_ns) == 1:
            return host_ns + low
        span_ns = int(self.host_ns[place + 1] - self.host_ns[place])
        share = min(1.0, max(0.0, (host_ns - int(self.host_ns[place])) / span_ns)) if span_ns else 0.0
        return host_ns + low + round(share * (int(self.offset_ns[place + 1]) - low))

    def at_all(self, host_ns: I64) -> I64:
        """``at`` for many, to within a nanosecond."""
        offset = np.interp(host_ns, self.host_ns, self.offset_ns - self.offset_ns[0])
        trace_ns: I64 = host_ns + self.offset_ns[0] + np.rint(offset).astype(np.int64)
        return trace_ns

    def intervals(self, host: Intervals) -> Intervals:
        """Intervals of the host's clock as intervals of the trace's."""
        return Intervals(
            tuple(self.at(start) for start in host.starts), tuple(self.at(end) for end in host.ends)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """One pass over an export: its header, its launches and its device activities. Times are trace ns."""

    header: dict[str, Any]
    process: int  # the pid that the host events carry
    anchors_ns: tuple[int, ...]  # starts of the ANCHOR events
    correlations: I64  # of launches
    launch_ns: I64
    launch_thread: I64
    activity_correlation: I64
    activity_device: I64
    activity_stream: I64
    activity_start_ns: I64
    activity_end_ns: I64
    malformed: int
    whole: bool  # the file was not cut off
    stack_threads: frozenset[int]  # threads with Python frames

    def launch_of_activity(self) -> I64:
        """The row of the launch of each activity, -1 where it was lost."""
        found = np.full(len(self.activity_correlation), -1, np.int64)
        if len(self.correlations) and len(found):
            order = np.argsort(self.correlations, kind="stable")
            place = np.searchsorted(self.correlations, self.activity_correlation, sorter=order)
            row = order[np.minimum(place, len(order) - 1)]
            linked = self.correlations[row] == self.activity_correlation
            found[linked] = row[linked]
        return found


_BITS = 64


def survey_export(path: Path) -> Survey:
    """Read an export once for what the window needs. Raises UnreadableInputError as ``split_export`` does."""
    header: dict[str, Any] = {}
    launches, activities = array("q"), array("q")
    anchors: list[int] = []
    stack_threads: set[int] = set()
    process, malformed, whole = 0, 0, False
    for part, raw in split_export(path):
        if part is not Part.EVENT:
            header |= decode_keys(raw)
            whole = part is Part.FOOTER
            continue
        event = decode_event(raw)
        if event is None:
            malformed += 1
        elif event.args is not None and event.args.correlation is not None and event.ph == "X":
            correlation = event.args.correlation
            if event.cat in DEVICE_ACTIVITIES:
                where = (_integer(event.pid), _integer(event.tid))
                malformed += not _add(activities, correlation, *where, event.start_ns, event.end_ns)
            elif event.cat not in DEVICE_CATEGORIES:
                malformed += not _add(launches, correlation, event.start_ns, _integer(event.tid))
        elif event.cat in HOST_CATEGORIES:
            process = process or _integer(event.pid)
            if event.name == ANCHOR:
                anchors.append(event.start_ns)
            elif event.cat == FRAME:
                stack_threads.add(_integer(event.tid))
    launched = np.array(launches, dtype=np.int64).reshape(-1, 3)
    active = np.array(activities, dtype=np.int64).reshape(-1, 5)
    return Survey(
        header=header,
        process=process,
        anchors_ns=tuple(sorted(anchors)),
        correlations=launched[:, 0],
        launch_ns=launched[:, 1],
        launch_thread=launched[:, 2],
        activity_correlation=active[:, 0],
        activity_device=active[:, 1],
        activity_stream=active[:, 2],
        activity_start_ns=active[:, 3],
        activity_end_ns=active[:, 4],
        malformed=malformed,
        whole=whole,
        stack_threads=frozenset(stack_threads),
    )


def _add(rows: array[int], *row: int) -> bool:
    """Add a row whole; False for one with a number that no clock and no counter has."""
    fits = all(number.bit_length() < _BITS for number in row)
    if fits:
        rows.extend(row)
    return fits


class WindowCut:
    """Decides event by event what is written; built once per trace, from the survey and the window."""

    def __init__(self, survey: Survey, window: Intervals) -> None:
        inside = np.fromiter((window.holds(int(at)) for at in survey.launch_ns), bool, len(survey.launch_ns))
        self.window = window
        self.launched: set[int] = set(survey.correlations[inside].tolist())
        self.known: set[int] = set(survey.correlations.tolist())
        kept = np.fromiter((c in self.launched for c in survey.activity_correlation.tolist()), bool)
        self.device_window = Intervals.union(
            [(int(survey.activity_start_ns[kept].min()), int(survey.activity_end_ns[kept].max()))]
            if kept.any()
            else []
        )

    def keep(self, raw: bytes) -> bytes | None:
        """The bytes to write for an event: as they are, clipped to the window, or None."""
        found = self.keep_event(raw)
        return None if found is None else found[0]

    def keep_event(self, raw: bytes) -> tuple[bytes, Event] | None:
        """``keep`` with the event that was read."""
        event = decode_event(raw)
        kept = None if event is None else self._kept(raw, event)
        return None if event is None or kept is None else (kept, event)

    def _kept(self, raw: bytes, event: Event) -> bytes | None:
        if event.ph == "M":
            return raw
        if event.ph in FLOW_PHASES and event.cat == "ac2g":
            return raw if event.id in self.launched else None
        if event.cat in DEVICE_CATEGORIES:
            return raw if self._launched_inside(event) else None
        if event.cat == DEVICE_ANNOTATION:
            return clipped(raw, event, self.device_window)
        if event.name == ANCHOR:
            return None
        if event.cat in OVERLAPPING_CATEGORIES:
            return clipped(raw, event, self.window)
        return raw if self.window.holds(event.start_ns) else None

    def _launched_inside(self, event: Event) -> bool:
        """By the launch; an activity whose launch was lost is judged by its own start."""
        correlation = None if event.args is None else event.args.correlation
        if correlation in self.known:
            return correlation in self.launched
        return self.window.holds(event.start_ns)


def clipped(raw: bytes, event: Event, window: Intervals) -> bytes | None:
    """An event cut to the window it overlaps, over a pause from its first to its last piece; None outside."""
    start_ns, end_ns = event.start_ns, event.end_ns
    parts = window.clip(start_ns, max(end_ns, start_ns + 1))
    if not parts:
        return None
    low, high = parts[0][0], min(parts[-1][1], end_ns)
    if (low, high) == (start_ns, end_ns):
        return raw
    fields = msgspec.json.decode(raw, type=dict[str, Any])
    return msgspec.json.encode(fields | {"ts": microseconds(low), "dur": microseconds(high - low)})


def microseconds(time_ns: int) -> msgspec.Raw:
    """Integer ns as the format's microseconds with three decimals, exactly."""
    sign, magnitude = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return msgspec.Raw(f"{sign}{magnitude // 1000}.{magnitude % 1000:03d}".encode())


def _integer(value: int | str) -> int:
    """A pid or tid as an integer; the recorder's own rows have words there, and no launches."""
    return value if isinstance(value, int) else -1
