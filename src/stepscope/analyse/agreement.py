"""Do a run's numbers agree with each other? One rule, one function, one sentence when it fails."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.model.dump import DumpTrust
from stepscope.model.run import Run
from stepscope.model.vocabulary import Stage

TOLERANCE = 0.02
"""Two measurements of the same thing may differ by this share (design.md, rule 2)."""

UNACCOUNTED_LIMIT = 0.05
"""Share of the total that may lie in no stage; it is shown as its own row, so it misleads nobody."""

NS_PER_MS = 1e6

Rule = Callable[[Run], tuple[str, ...]]


def trust_of(run: Run) -> DumpTrust:
    """Every reason why the run's numbers should not be trusted; none means that they agree."""
    reasons = tuple(reason for rule in RULES for reason in rule(run))
    return DumpTrust(ok=not reasons, reasons=reasons)


def _incomplete(run: Run) -> tuple[str, ...]:
    return () if run.incomplete_reason is None else (f"the run is incomplete: {run.incomplete_reason}",)


def _clock(run: Run) -> tuple[str, ...]:
    return () if run.clock.trusted else (f"the clock is not trusted: {run.clock.self_test}",)


def _total_missing(run: Run) -> tuple[str, ...]:
    if run.total_ns is not None:
        return ()
    return ("the total could not be measured: the sum of the stages stands in its place",)


def _nothing_seen(run: Run) -> tuple[str, ...]:
    if run.stages or run.incomplete_reason is not None:
        return ()
    return ("no stage was seen: the pipeline makes no call that is known",)


def _stages_against_total(run: Run) -> tuple[str, ...]:
    total_ns = run.total_ns
    if not run.stages or not total_ns:
        return ()
    stages_ns = sum(stage.span.duration_ns for stage in run.stages)
    rest = (total_ns - stages_ns) / total_ns
    if rest > UNACCOUNTED_LIMIT:
        return (f"{rest:.1%} of the total ({_ms(total_ns - stages_ns)}) is in no stage",)
    if rest < -TOLERANCE:
        return (f"the stages sum to {_ms(stages_ns)}, {-rest:.1%} more than the total of {_ms(total_ns)}",)
    return ()


def _steps_against_their_stage(run: Run) -> tuple[str, ...]:
    reasons = []
    for stage in run.stages:
        steps = [step for step in run.steps if step.stage_index == stage.stage_index]
        stage_ns = stage.span.duration_ns
        if stage.span.name != Stage.DENOISING or not steps or stage_ns <= 0:
            continue
        steps_ns = sum(step.span.duration_ns for step in steps)
        if _apart(steps_ns, stage_ns) > TOLERANCE:
            reasons.append(
                f"the {len(steps)} steps sum to {_ms(steps_ns)}, {steps_ns / stage_ns:.1%} of the "
                f"{_ms(stage_ns)} of {stage.span.name} (stage {stage.stage_index})"
            )
    return tuple(reasons)


def _device_against_host_clock(run: Run) -> tuple[str, ...]:
    """The same two moments on both clocks: the elapsed times must agree."""
    moments: dict[str | None, list[tuple[int, int]]] = {}
    for anchor in run.anchors:
        if anchor.device_ns is not None:
            moments.setdefault(anchor.device, []).append((anchor.host_ns, anchor.device_ns))
    reasons = []
    for device, pairs in moments.items():
        (host_from, device_from), (host_to, device_to) = min(pairs), max(pairs)
        host_ns, device_ns = host_to - host_from, device_to - device_from
        if host_ns > NS_PER_MS and _apart(device_ns, host_ns) > TOLERANCE:
            reasons.append(f"the clock of {device} says {_ms(device_ns)}, the host's says {_ms(host_ns)}")
    return tuple(sorted(reasons))


RULES: tuple[Rule, ...] = (
    _incomplete,
    _clock,
    _total_missing,
    _nothing_seen,
    _stages_against_total,
    _steps_against_their_stage,
    _device_against_host_clock,
)


def _apart(measured_ns: int, reference_ns: int) -> float:
    """By what share of the reference two durations differ."""
    return abs(measured_ns - reference_ns) / reference_ns


def _ms(duration_ns: float) -> str:
    return f"{duration_ns / NS_PER_MS:.1f} ms"
