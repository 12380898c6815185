"""How much longer traced steps take than untraced ones, in several readings."""

from __future__ import annotations

import statistics
from typing import Any

from tracing.cases import TRACED

Times = dict[str, Any]
Pair = tuple[Times, Times]  # of the process that traces, of the one that does not


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def distortion(pairs: list[Pair]) -> dict[str, Any]:
    """Traced over untraced, for the device's time of a step and the host's.

    ``ratio`` compares the medians of all traced steps, of the same indices; ``of_pairs`` step by step within
    each pair of requests; ``of_quiet`` the lower quartiles, which a busy host moves least. ``of_requests``
    compares the traced steps with the untraced last ones of the same request, over the same in the plain
    request: the host's speed, which has been seen to change twofold between requests, cancels out, and so
    does what a profiler leaves behind after it has stopped collecting.
    """
    found: dict[str, Any] = {}
    for which in ("device_ms", "host_ms"):
        ours = [one[0][which][step] for one in pairs for step in range(1, TRACED + 1)]
        theirs = [one[1][which][step] for one in pairs for step in range(1, TRACED + 1)]
        by_pair = [sum(one[0][which][1 : TRACED + 1]) / sum(one[1][which][1 : TRACED + 1]) for one in pairs]
        found[which.removesuffix("_ms")] = {
            "ratio": statistics.median(ours) / statistics.median(theirs),
            "of_pairs": spread(by_pair),
            "of_quiet": quartile(ours) / quartile(theirs),
            "of_requests": spread([early_over_late(a[which]) / early_over_late(b[which]) for a, b in pairs]),
            "traced_ms": statistics.median(ours),
            "plain_ms": statistics.median(theirs),
        }
    return found


def early_over_late(steps_ms: list[float]) -> float:
    """Steps 1 to ``TRACED`` over the last ones, which no request traces; without the step of the stop."""
    late = steps_ms[TRACED + 2 :] or steps_ms[TRACED + 1 :]
    return statistics.median(steps_ms[1 : TRACED + 1]) / statistics.median(late)


def quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


def summary_lines(name: str, result: dict[str, Any]) -> str:
    """One line a detail, to be read while the rest runs."""
    lines = []
    for label, found in result.items():
        if not isinstance(found, dict) or "device" not in found:
            continue
        line = f"{name:13} {label:16}"
        for which in ("device", "host"):
            one = found[which]
            pairs = f"{one['of_pairs']['median']:.3f}, quiet {one['of_quiet']:.3f}, "
            pairs += f"requests {one['of_requests']['median']:.3f}"
            line += f" {which} {one['ratio']:.3f} ({pairs})"
        if "file_s" in found:
            megabytes = {key: found[key] / 1e6 for key in ("file_bytes", "file_raw_bytes")}
            line += (
                f" file {found['file_s']['median']:6.2f} s {megabytes['file_bytes']:7.2f} MB"
                f" (raw {megabytes['file_raw_bytes']:7.1f})"
                f" peak {found['peak_bytes']['median'] / 1e6:6.0f} MB"
                f" lines {found.get('with_exact_line', 0):.4f}"
            )
        lines.append(line)
    return "\n".join(lines)
