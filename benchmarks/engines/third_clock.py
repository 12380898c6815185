"""Each step of a request by a clock that has nothing of stepscope in it, and where ours differs from it.

The definition: a step ends where the progress bar moves on after its scheduler's ``step``, or with that where
there is none, and the next begins there; the first begins where the denoising stage does, the last ends with
it; what an engine's scheduler or a profiler does between or inside them is no step's. The times come from
``plain_times.py``, which wraps the same points without us.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

Interval = tuple[float, float]
"""Begin and end in milliseconds of ``time.perf_counter``, which all processes of a machine share on Linux."""

Span = tuple[str, str | None, Interval]
"""What it is of, its name, and when."""

CLOSE_MS = 2.0
"""What our reading of a step may differ: wrappers of one lie inside the other's, and a loaded machine may
take the processor away between two readings of the same moment."""


@dataclass(frozen=True)
class Third:
    """One request: where its steps begin and end, and what lies in none of them."""

    steps: tuple[Interval, ...]
    scheduling: tuple[Interval, ...] = ()  # the engine at work between two waves of one step each
    profiler: tuple[Interval, ...] = ()  # the engine's and torch's: starting, stepping, stopping, exporting

    @property
    def durations_ms(self) -> list[float]:
        """Each step without the engine's scheduling, a profiler's work included."""
        return [end - begin - within(self.scheduling, (begin, end)) for begin, end in self.steps]

    @property
    def own_ms(self) -> list[float]:
        """Each step without a profiler's work either."""
        durations = zip(self.durations_ms, self.steps, strict=True)
        return [whole - within(self.profiler, step) for whole, step in durations]


def of_sglang(times: list) -> Third:
    """From the times of one request of SGLang: its stage, its scheduler's steps, profilers."""
    (stage,) = (span for kind, name, span in _spans(times) if (kind, name) == ("stage", "DenoisingStage"))
    ends = _step_ends(_spans(times))
    profiler = [span for kind, _, span in _spans(times) if kind == "profiler"]
    return Third(steps=_between([stage[0], *ends[:-1], stage[1]]), profiler=_merged(profiler))


def of_vllm_omni(times: list, steps: int) -> list[Third]:
    """From all times of a vLLM-Omni process: a request a call of its decoder, of ``steps`` steps each.

    There is no stage to wrap, and a gap belongs to the call after it: denoising begins when the timesteps are
    set and ends with the last step of the scheduler.
    """
    spans = _spans(times)
    calls = sorted(span for kind, _, span in spans if kind == "call")
    waits = tuple((one[1], other[0]) for one, other in itertools.pairwise(calls))
    ends = _step_ends(spans)
    found = []
    for decode in (span for kind, _, span in spans if kind == "decode"):
        begin = max(span[1] for kind, _, span in spans if kind == "timesteps" and span[1] < decode[0])
        own = [end for end in ends if begin < end < decode[0]]
        if len(own) == steps:  # not a warm-up of the engine's own
            found.append(Third(steps=_between([begin, *own]), scheduling=waits))
    return found


def apart(
    ours_ms: list[float], pauses: list[Interval], third: Third, close_ms: float = CLOSE_MS
) -> list[str]:
    """The steps that differ by more than ``close_ms`` from the third clock's, our pauses left out of it."""
    found = []
    for number, (ours, whole, step) in enumerate(zip(ours_ms, third.durations_ms, third.steps, strict=True)):
        expected = whole - within(pauses, step)
        if abs(ours - expected) > close_ms:
            found.append(f"step {number}: {ours:.1f} ms, by the third clock {expected:.1f}")
    return found


def within(intervals: Iterable[Interval], span: Interval) -> float:
    """How much of ``span`` the intervals, which do not overlap, take."""
    return sum(max(0.0, min(end, span[1]) - max(begin, span[0])) for begin, end in intervals)


def _step_ends(spans: list[Span]) -> list[float]:
    """Where each iteration ends that has stepped a scheduler."""
    progress = [span[1] for kind, _, span in spans if kind == "progress"]
    schedulers = sorted(span for kind, _, span in spans if kind == "scheduler")
    following = [*(begin for begin, _ in schedulers[1:]), math.inf]
    return [
        min((moved for moved in progress if end <= moved <= until), default=end)
        for (_, end), until in zip(schedulers, following, strict=True)
    ]


def _spans(times: list) -> list[Span]:
    return [(kind, name, (1000 * begin, 1000 * end)) for kind, name, begin, end in times]


def _between(moments: list[float]) -> tuple[Interval, ...]:
    return tuple(itertools.pairwise(moments))


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Without overlaps: exporting may lie inside stepping."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return tuple(found)
