"""Decimal microseconds of a Kineto trace as exact integer nanoseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from stepscope.record.kineto.event import Event
from stepscope.record.reader_warnings import WarningLog

I64 = NDArray[np.int64]
EXACT_BELOW_US = 2**43
"""A double holds times below this, 101 days, to within 0.49 ns; later ones need every digit."""

_FARTHEST_US = 4e15  # start and end still fit int64 nanoseconds; about the year 2096 as a unix time


@dataclass(frozen=True, slots=True, eq=False)
class EventTimes:
    """Columns of the events whose times can be used; ``readable`` tells which, None if all."""

    start_ns: I64
    duration_ns: I64
    readable: NDArray[np.bool_] | None


def event_times(events: Sequence[Event], log: WarningLog) -> EventTimes:
    """Start and duration of each event; a negative duration counts as none and is noted."""
    start_us = _floats([event.ts for event in events])
    duration_us = np.array([event.dur for event in events], np.float64)
    good = (np.abs(start_us) < _FARTHEST_US) & (np.abs(duration_us) < _FARTHEST_US)
    readable = None
    if not good.all():
        log.add("time_out_of_range", "events with an impossible time were skipped", int((~good).sum()))
        start_us, duration_us, readable = start_us[good], duration_us[good], good
        events = [event for event, is_good in zip(events, good, strict=True) if is_good]
    duration_ns = nanoseconds(duration_us)
    negative = int((duration_ns < 0).sum())
    log.add("negative_duration", "events with a negative duration count as taking no time", negative)
    is_exact = bool(events) and isinstance(events[0].ts, Decimal)
    start_ns = _exact_nanoseconds(events) if is_exact else nanoseconds(start_us)
    return EventTimes(start_ns, np.maximum(duration_ns, 0), readable)


def nanoseconds(microseconds: NDArray[np.float64]) -> I64:
    """Nanoseconds of times that were written with three decimals; exact below ``EXACT_BELOW_US``.

    Recorders since 2024 write times relative to ``baseTimeNanoseconds``, at most 92 days.
    """
    return np.rint(microseconds * 1000).astype(np.int64)


def _floats(values: Sequence[float | Decimal]) -> NDArray[np.float64]:
    """Times as doubles; NaN for a decimal that is no number and says so with a signal."""
    try:
        return np.array(values, np.float64)
    except ValueError:
        return np.array(
            [math.nan if Decimal(value).is_nan() else float(value) for value in values], np.float64
        )


def _exact_nanoseconds(events: Sequence[Event]) -> I64:
    return np.array([round(Decimal(event.ts) * 1000) for event in events], np.int64)
