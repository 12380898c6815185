"""Which times a trace of ours holds: the steps asked for, and not what another stage did between them."""

from __future__ import annotations

from stepscope.analyse.intervals import Intervals, covered_ns, gaps, union
from stepscope.analyse.trace.mark_ranges import HostSpan
from stepscope.model.trace import Trace


def recorded_window(trace: Trace) -> Intervals | None:
    """What stepscope wrote of it into the header; None in others' traces, which leave nothing out."""
    header = trace.metadata.get("stepscope")
    pairs = header.get("window") if isinstance(header, dict) else None
    if not isinstance(pairs, list) or not all(_is_interval(pair) for pair in pairs):
        return None
    return union([start for start, _ in pairs], [end for _, end in pairs])


def _is_interval(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(at) is int and abs(at) < 2**62 for at in pair)
        and pair[0] <= pair[1]
    )


def interrupted(window: Intervals | None, before: HostSpan, after: HostSpan) -> bool:
    """Whether something lay between two spans of one name that the trace does not hold."""
    if window is None or after.start_ns <= before.end_ns:
        return False
    return int(covered_ns(window, [before.end_ns], [after.start_ns])[0]) < after.start_ns - before.end_ns


def left_out(window: Intervals | None) -> tuple[str, ...]:
    """What must be said of the time between the recorded parts."""
    if window is None or len(window) < 2:
        return ()
    left_ns = gaps(window, int(window.start_ns[0]), int(window.end_ns[-1])).total_ns
    return (
        f"{left_ns / 1e6:,.2f} ms between the recorded steps are not in the trace: another stage ran "
        "there, or the profiler was stopped. The run's own times have it, and so has a trace with "
        "--profile-all-stages.",
    )
