"""How much CPU this process got during a call, and how long its threads waited for one.

Where the host does the work its clock is the measurement, and a process that others push off the CPU measures
them too. Linux keeps, for each thread, the time it ran and the time it was ready to run and waited
(``/proc/[pid]/task/[tid]/schedstat``: ns, ns, time slices; kernel document scheduler/sched-stats). Reading
them takes some microseconds a thread and happens outside of what is timed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from stepscope.model.run import CpuUse

THREADS = Path("/proc/self/task")

WORKING_SHARE = 0.1
"""A thread that ran less than this share of what the busiest one ran does none of the work: whether it had to
wait (a progress bar, a monitor) says nothing about the times."""


_LONGEST = 128
"""Bytes of three 64-bit numbers, with room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    """The process at one moment. ``threads``: (ran, waited) in ns by thread id; empty where not known."""

    wall_ns: int
    cpu_ns: int
    threads: dict[str, tuple[int, int]]
    involuntary_switches: int | None


def read_cpu() -> CpuReading:
    """Read the counters of this process; what the system does not have is left out."""
    return CpuReading(
        wall_ns=time.perf_counter_ns(),
        cpu_ns=time.process_time_ns(),
        threads=_threads(THREADS),
        involuntary_switches=_involuntary_switches(),
    )


def cpu_use(before: CpuReading, after: CpuReading) -> CpuUse:
    """What happened between two readings.

    The wait is that of the working thread that waited longest, so it never exceeds the wall time. Threads
    that ended in between are not seen.
    """
    spent = {
        thread: (ran - before.threads.get(thread, (0, 0))[0], waited - before.threads.get(thread, (0, 0))[1])
        for thread, (ran, waited) in after.threads.items()
    }
    busiest = max((ran for ran, _ in spent.values()), default=0)
    waits = [waited for ran, waited in spent.values() if ran >= WORKING_SHARE * busiest]
    wall_ns = after.wall_ns - before.wall_ns
    switches = None
    if before.involuntary_switches is not None and after.involuntary_switches is not None:
        switches = after.involuntary_switches - before.involuntary_switches
    return CpuUse(
        wall_ns=wall_ns,
        cpu_ns=after.cpu_ns - before.cpu_ns,
        cpus=usable_cpus(),
        waited_ns=min(max(waits), wall_ns) if waits else None,
        involuntary_switches=switches,
    )


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _threads(folder: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    try:
        threads = os.listdir(folder)  # noqa: PTH208  pathlib takes three times as long, twice a request
    except OSError:
        return found
    for thread in threads:
        if (times := _times(f"{folder}/{thread}/schedstat")) is not None:
            found[thread] = times
    return found


def _times(file: str) -> tuple[int, int] | None:
    """None where the thread has ended, or the kernel keeps no such numbers."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        ran, waited, _ = os.read(descriptor, _LONGEST).split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _involuntary_switches() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
