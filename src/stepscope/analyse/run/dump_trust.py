"""Whether the numbers of a perf dump agree with each other: one function a rule, each a reason or None.

The rules know what a wrong dump looks like because such dumps are published: SGLang #15537, #16219, #22365
and its H100 baselines (host timers around asynchronous launches), #39956 (18 to 30 times too small),
the SDXL TensorRT card (a decode of 0.00 ms), and SGLang's profiler stopping and exporting inside timed steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from stepscope.analyse.results import Trust
from stepscope.model.dump import DumpStep, NamedDuration, PerfDump
from stepscope.model.vocabulary import ClockKind

TOLERANCE = 0.02
"""What may disagree without a word (design, rules of truth 2)."""

SLACK_MS = 2.0
"""Below this, a difference is that of Python code between two timers, not a contradiction."""

ENQUEUE_SHARE = 0.6
ENQUEUE_STEPS = 3
"""Published enqueue dumps: step 0 or 1 at 0.15 to 0.36 of the plateau, which the fourth step has reached."""

LOOP_SHARE = 0.6
"""Steps that sum to less of their stage were not timed to their end. A truthful CPU run leaves 5 %."""

INVISIBLE_DECODE = 0.02
"""A decode shorter than this share of a step. Truthful ones are 0.07 and more, the bogus ones 0.016 and 0."""

OVERWRITTEN = (
    "an engine that keeps one time a stage name loses all but the last of a stage that occurs several times"
)
"""SGLang's dump is keyed by the stage's name (facts: repeated stages overwrite each other); ours is not."""

PAUSE_RATIO = 3.0
PAUSE_MS = 100.0
"""A profiler's stop or export took 1.3 to 5 s on an H200 and 0.25 to 1.3 s for a tiny model on a CPU."""


def judge(dump: PerfDump) -> Trust:
    """Every reason why the dump's numbers cannot be taken as they are; what the recorder said comes first."""
    stated = () if dump.trust is None or dump.trust.ok else dump.trust.reasons or ("its recorder says so",)
    found = (rule(dump) for rule in RULES)
    reasons = dict.fromkeys([*stated, *(reason for reason in found if reason)])
    return Trust(ok=not reasons, reasons=tuple(reasons))


def total_missing(dump: PerfDump) -> str | None:
    """A run without a total cannot be reconciled."""
    if math.isfinite(dump.total_duration_ms) and dump.total_duration_ms > 0:
        return None
    return "the total is missing or zero"


def impossible_durations(dump: PerfDump) -> str | None:
    """A duration below zero, or a step that took no time."""
    stages = [stage.name for stage in stage_times(dump) if not stage.duration_ms >= 0]
    steps = [f"step {step.step}" for step in dump.denoise_steps_ms if not step.duration_ms > 0]
    if bad := [*stages, *steps]:
        return f"impossible durations (zero or negative): {', '.join(bad[:5])}"
    return None


def stages_exceed_total(dump: PerfDump) -> str | None:
    """Stages do not overlap: together they cannot last longer than the run."""
    total = dump.total_duration_ms
    together = sum(stage.duration_ms for stage in stage_times(dump))
    if total > 0 and _beyond(together - total, total):
        return f"the stages sum to {_ms(together)}, more than the total of {_ms(total)}"
    return None


def total_exceeds_stages(dump: PerfDump) -> str | None:
    """Time of the run that no stage has; weights moved by offloading are rows of their own, not missing."""
    stages = stage_times(dump)
    total = dump.total_duration_ms
    moved = sum(transfer.exposed_ms or 0.0 for transfer in dump.transfers)
    missing = total - moved - sum(stage.duration_ms for stage in stages)
    if stages and total > 0 and _beyond(missing, total):
        found = (
            f"{_ms(missing)} of the total of {_ms(total)} ({100 * (missing / total):.0f} %) is in no stage"
        )
        return found if dump.stages else f"{found}; {OVERWRITTEN}"
    return None


def steps_exceed_stage(dump: PerfDump) -> str | None:
    """Steps lie inside their denoising stage (or, without stages, inside the run)."""
    steps = sum(step.duration_ms for step in dump.denoise_steps_ms)
    loop = denoising_ms(dump)
    if loop is not None and steps > 0 and _beyond(steps - loop, loop):
        return f"the steps sum to {_ms(steps)}, more than the denoising stage's {_ms(loop)}"
    if loop is None and dump.total_duration_ms > 0 and _beyond(steps - dump.total_duration_ms, steps):
        return f"the steps sum to {_ms(steps)}, more than the total of {_ms(dump.total_duration_ms)}"
    return None


def steps_far_below_stage(dump: PerfDump) -> str | None:
    """A denoising stage is roughly the sum of its steps; much less means that steps were not waited for."""
    steps = sum(step.duration_ms for step in dump.denoise_steps_ms)
    loop = denoising_ms(dump)
    if loop is None or steps <= 0 or steps >= LOOP_SHARE * loop or loop - steps < SLACK_MS:
        return None
    return (
        f"the steps sum to {_ms(steps)} but their stage took {_ms(loop)} ({loop / steps:.1f} times as long): "
        "the steps were not timed to their end, or much of the stage lies outside its loop"
    )


def first_steps_are_enqueue_times(dump: PerfDump) -> str | None:
    """Tiny first steps rising to a plateau: the time to enqueue work, not to do it."""
    steps = _alike(dump)
    if _knows_device_time(dump) or _several_loops(dump) or len(steps) < ENQUEUE_STEPS + 1:
        return None
    plateau = median(step.duration_ms for step in steps)
    short = [step.step for step in steps if step.duration_ms < ENQUEUE_SHARE * plateau]
    if not short or max(short) >= ENQUEUE_STEPS:
        return None  # short steps further on are a cache's skipped steps
    said = ", ".join(f"step {step.step} {_ms(step.duration_ms)}" for step in steps if step.step in short)
    return (
        f"the first steps look like enqueue times: {said}, the others about {_ms(plateau)} "
        "(a host timer without synchronisation; what is missing there is charged to later steps or decode)"
    )


def decode_is_invisible(dump: PerfDump) -> str | None:
    """A decode of next to nothing: its work was charged elsewhere, or not waited for."""
    decodes = [stage for stage in stage_times(dump) if "Decod" in stage.name]
    steps = [step.duration_ms for step in dump.denoise_steps_ms]
    together = sum(stage.duration_ms for stage in decodes)
    if not decodes or not steps or together < 0:
        return None
    if together > 0 and (_knows_device_time(dump) or together >= INVISIBLE_DECODE * median(steps)):
        return None
    return f"{decodes[0].name} took {_ms(together)}, next to nothing against a step of {_ms(median(steps))}"


def profiler_charged_to_steps(dump: PerfDump) -> str | None:
    """One or two huge steps after the traced window: the profiler's stop and its export, timed as steps."""
    steps = dump.denoise_steps_ms
    if not any(step.traced for step in steps) and (_knows_device_time(dump) or _several_loops(dump)):
        return None
    usual = median(step.duration_ms for step in steps) if steps else 0.0
    huge = [
        position
        for position, step in enumerate(steps)
        if step.duration_ms >= PAUSE_RATIO * usual and step.duration_ms - usual >= PAUSE_MS
    ]
    if len(steps) <= ENQUEUE_STEPS or not _are_where_a_profiler_stops(huge, steps):
        return None
    said = ", ".join(f"step {steps[position].step} {_ms(steps[position].duration_ms)}" for position in huge)
    return (
        f"isolated huge steps ({said}; the median is {_ms(usual)}): most likely a profiler's stop and export "
        "charged to steps, to their stage and to the total; else a compilation or weights moved in mid-run. "
        "The other steps and the other stages can be kept"
    )


RULES = (
    total_missing,
    impossible_durations,
    stages_exceed_total,
    total_exceeds_stages,
    steps_exceed_stage,
    steps_far_below_stage,
    first_steps_are_enqueue_times,
    decode_is_invisible,
    profiler_charged_to_steps,
)


def stage_times(dump: PerfDump) -> tuple[NamedDuration, ...]:
    """Every stage occurrence where the dump has them, else SGLang's sums by name."""
    if dump.stages:
        return tuple(NamedDuration(name=s.name, duration_ms=s.duration_ms) for s in dump.stages)
    return dump.steps


def denoising_ms(dump: PerfDump) -> float | None:
    """Time of the stages that hold the steps; None where there is no such stage."""
    indices = {step.stage_index for step in dump.denoise_steps_ms}
    if dump.stages and None not in indices:
        parts = [stage.duration_ms for stage in dump.stages if stage.stage_index in indices]
    else:
        parts = [stage.duration_ms for stage in stage_times(dump) if _holds_steps(stage.name)]
    return sum(parts) if parts else None


def _holds_steps(name: str) -> bool:
    # SGLang's names: DenoisingStage, DmdDenoisingStage, LTX2RefinementStage, ...; not BeforeDenoisingStage.
    return ("Denoising" in name and "BeforeDenoising" not in name) or "Refinement" in name


def _several_loops(dump: PerfDump) -> bool:
    """Whether steps of several denoising stages follow each other: theirs may differ in size."""
    return sum(_holds_steps(stage.name) for stage in stage_times(dump)) > 1


def _are_where_a_profiler_stops(positions: Sequence[int], steps: Sequence[DumpStep]) -> bool:
    if not positions or len(positions) > 2 or positions[-1] - positions[0] != len(positions) - 1:
        return False
    if any(step.traced for step in steps):
        return positions[0] > 0 and steps[positions[0] - 1].traced and not steps[positions[0]].traced
    return positions[0] >= 2  # the earliest stop of SGLang's schedule; steps 0 and 1 are warm-up


def _alike(dump: PerfDump) -> list[DumpStep]:
    """Computed steps with as many forwards as most: guidance may begin later, a cache may skip."""
    steps = [step for step in dump.denoise_steps_ms if step.work == "computed"]
    counts = [len(step.forwards) for step in steps]
    usual = max(set(counts), key=counts.count) if counts else 0
    return [step for step in steps if len(step.forwards) == usual]


def _knows_device_time(dump: PerfDump) -> bool:
    """Whether the recorder waited for the device, or had none: then a short step is a short step."""
    if dump.clock == ClockKind.HOST.value:
        return str(dump.environment.get("device_kind", "")) == "cpu"
    return dump.clock in (ClockKind.DEVICE_EVENTS.value, ClockKind.SYNCHRONISED_HOST.value)


def _beyond(excess_ms: float, of_ms: float) -> bool:
    return excess_ms > max(TOLERANCE * of_ms, SLACK_MS)


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.3g} ms"
