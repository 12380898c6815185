"""What each stream was still busy with when the window began: until when, not the work itself.

The host runs ahead: when it issues the first recorded step, the devices still have what came before. That
work is not in the file, and without its end the first step would seem to begin too early.
"""

from __future__ import annotations

import numpy as np

from stepscope.record.trace_writing.trace_window import Intervals, Survey


def busy_until(survey: Survey, window: Intervals) -> list[dict[str, int]]:
    """For each interval and stream, the end of work that was launched before it and is not written."""
    row = survey.launch_of_activity()
    launched_ns = np.where(row >= 0, survey.launch_ns[row], -1) if len(survey.launch_ns) else row
    left_out = (row >= 0) & ~np.fromiter(map(window.holds, launched_ns.tolist()), bool, len(row))
    found = []
    for start_ns in window.starts:
        late = left_out & (launched_ns < start_ns) & (survey.activity_end_ns > start_ns)
        streams = np.stack((survey.activity_device[late], survey.activity_stream[late]), axis=1)
        for device, stream in np.unique(streams, axis=0).tolist():
            on_stream = late & (survey.activity_device == device) & (survey.activity_stream == stream)
            until_ns = int(survey.activity_end_ns[on_stream].max())
            found.append({"at_ns": start_ns, "device": device, "stream": stream, "until_ns": until_ns})
    return found


def moved(entries: list[dict[str, int]], by_ns: int) -> list[dict[str, int]]:
    """The same at another time."""
    return [{**one, "at_ns": one["at_ns"] + by_ns, "until_ns": one["until_ns"] + by_ns} for one in entries]
