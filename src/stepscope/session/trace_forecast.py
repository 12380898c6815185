"""How large a trace will be, said before it is recorded, and how many steps fit below a cap."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stepscope.model.run import Run
from stepscope.model.vocabulary import TraceDetail
from stepscope.session.generate_options import ProfileOptions
from stepscope.session.mapping import Mapping
from stepscope.workload.request import Loaded
from stepscope.workload.tuning import denoisers

RAW_BYTES_A_MODULE_CALL = 17_000
"""Of the profiler's own export, for one call of one module with shapes and stacks.

Measured: the ten tiny presets, --profile-all-stages, torch 2.13 on a CPU: 10,900 to 28,000, median 16,600
(benchmarks/trace_size.py). A GPU adds its kernels and launches.
"""
PACKED_SHARE = 1 / 10.6
"""Of the finished file: 1/10.3 to 1/11.4 in the same measurement."""
OPERATORS_SHARE = 0.3
"""Of the export with shapes and stacks, where there are operators only: 5.3 of 17.2 MB on a CPU, and 132 of
276 MB on an H200, where kernels and launches are a larger part; the same for the finished file."""

RAW_BYTES_A_LAUNCH = 1_280
"""Of a lean export: 75.2 MB for the 58,626 launches of five Qwen-Image steps on an H200."""
BYTES_A_LAUNCH = 66
"""Of the finished lean file, sources included: 3.6 to 3.9 MB for the same five steps."""
RAW_BYTES_AN_OPERATOR = 330
BYTES_AN_OPERATOR = 24
"""The same for each operator on a CPU, where operators are the work: 7.2 MB and 0.47 MB for 21,700."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceForecast:
    """What a trace will take, for each step."""

    step_bytes: float  # of the finished file
    step_raw_bytes: float  # of the export beside it while it is written
    outside_share: float = 0.0  # what all other stages add, as a number of steps

    def steps_worth(self, steps: int, *, all_stages: bool) -> float:
        """Steps, and the other stages as if they were some more."""
        return steps + (self.outside_share if all_stages else 0.0)

    def fitting(self, cap_bytes: float) -> int:
        """How many steps fit below a cap; at least one."""
        return max(1, math.floor(cap_bytes / self.step_bytes))

    def text(self, steps: int, *, all_stages: bool) -> str:
        """A sentence for the user."""
        what = f"all stages of {steps} steps" if all_stages else f"{steps} steps" if steps > 1 else "1 step"
        count = self.steps_worth(steps, all_stages=all_stages)
        said = (
            f"tracing {what}: expect about {_mb(self.step_bytes * count)}, "
            f"and {_mb(self.step_raw_bytes * count)} beside it while it is written"
        )
        return f"{said}; without --profile-all-stages it is smaller" if all_stages else said


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWindow:
    """The steps that will be traced, and what is said about them beforehand."""

    steps: int  # after step 0; -1: all
    all_stages: bool
    forecast: str = ""
    note: str = ""  # why it is less than was asked for


def plan_window(profile: ProfileOptions, total: int | None, expected: TraceForecast | None) -> PlannedWindow:
    """What was asked for, or as many steps as fit below the cap."""
    asked = PlannedWindow(steps=profile.steps, all_stages=profile.all_stages)
    everything = profile.all_stages or profile.steps == -1
    steps = total if everything else profile.steps if total is None else min(profile.steps, max(1, total - 1))
    if expected is None or steps is None:
        return asked
    cap_bytes = profile.max_bytes
    size_bytes = expected.step_bytes * expected.steps_worth(steps, all_stages=profile.all_stages)
    if cap_bytes is None or size_bytes <= cap_bytes:
        return replace(asked, forecast=expected.text(steps, all_stages=profile.all_stages))
    fitting = min(expected.fitting(cap_bytes), steps)
    what = "all stages" if profile.all_stages else f"{steps} steps"
    note = (
        f"--max-trace-mb {cap_bytes / 1e6:g}: {what} would take about {_mb(size_bytes)}, "
        f"so {fitting} {'step is' if fitting == 1 else 'steps are'} traced"
    )
    text = expected.text(fitting, all_stages=False)
    return PlannedWindow(steps=fitting, all_stages=False, forecast=text, note=note)


def forecast(
    loaded: Loaded, detail: TraceDetail, warmup_run: Run | None, mapping: Mapping | None
) -> TraceForecast | None:
    """From what the mapping pass counted, else from the denoisers' modules; None where nothing tells."""
    if mapping is not None and mapping.calls_a_step:
        calls = mapping.calls_a_step
        packed, raw = (
            (BYTES_A_LAUNCH, RAW_BYTES_A_LAUNCH)
            if mapping.launches
            else (BYTES_AN_OPERATOR, RAW_BYTES_AN_OPERATOR)
        )
        return TraceForecast(
            step_bytes=calls * packed,
            step_raw_bytes=calls * raw,
            outside_share=mapping.calls_outside / calls,
        )
    if warmup_run is None or not warmup_run.steps:
        return None
    forwards = sum(len(step.forwards) for step in warmup_run.steps) / len(warmup_run.steps)
    modules = max(
        (sum(1 for _ in module.modules()) for module in denoisers(loaded.pipeline).values()), default=0
    )
    raw_bytes = modules * forwards * RAW_BYTES_A_MODULE_CALL
    if detail is not TraceDetail.FULL:
        raw_bytes *= OPERATORS_SHARE
    if not raw_bytes:
        return None
    return TraceForecast(step_bytes=raw_bytes * PACKED_SHARE, step_raw_bytes=raw_bytes)


def _mb(size_bytes: float) -> str:
    if size_bytes >= 1e9:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes < 1e7 else f"{size_bytes / 1e6:.0f} MB"
