"""Do a run's numbers agree with each other? What only the run knows; the rest is judged from its dump."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.analyse.run.cpu_trust import held_up_by_another_call, starved_host
from stepscope.analyse.run.dump_trust import SLACK_MS, TOLERANCE, judge
from stepscope.model.dump import DumpTrust, PerfDump
from stepscope.model.run import Run
from stepscope.model.vocabulary import Stage

NS_PER_MS = 1e6

Rule = Callable[[Run], tuple[str, ...]]


def trust_of(run: Run, dump: PerfDump) -> DumpTrust:
    """Every reason why the run's numbers should not be trusted; none means that they agree.

    ``dump`` is the run's own, without trust yet: the rules that hold for anyone's dump hold for ours.
    """
    found = (*(reason for rule in RULES for reason in rule(run)), *judge(dump).reasons)
    reasons = tuple(dict.fromkeys(found))
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


def _steps_against_their_stage(run: Run) -> tuple[str, ...]:
    reasons = []
    for stage in run.stages:
        steps = [step for step in run.steps if step.stage_index == stage.stage_index]
        stage_ns = stage.span.duration_ns
        if stage.span.name != Stage.DENOISING or not steps or stage_ns <= 0:
            continue
        steps_ns = sum(step.span.duration_ns for step in steps)
        if _apart(steps_ns, stage_ns) and abs(steps_ns - stage_ns) > SLACK_MS * NS_PER_MS:
            reasons.append(
                f"the {len(steps)} steps sum to {_ms(steps_ns)}, {100 * (steps_ns / stage_ns):.1f} % of the "
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
        if host_ns > NS_PER_MS and _apart(device_ns, host_ns):
            reasons.append(f"the clock of {device} says {_ms(device_ns)}, the host's says {_ms(host_ns)}")
    return tuple(sorted(reasons))


RULES: tuple[Rule, ...] = (
    _incomplete,
    _clock,
    _total_missing,
    _nothing_seen,
    _steps_against_their_stage,
    _device_against_host_clock,
    starved_host,
    held_up_by_another_call,
)


def _apart(measured_ns: int, reference_ns: int) -> bool:
    """Whether two measurements of one thing differ by more than the tolerance."""
    return abs(measured_ns - reference_ns) > TOLERANCE * reference_ns


def _ms(duration_ns: float) -> str:
    return f"{duration_ns / NS_PER_MS:.1f} ms"
