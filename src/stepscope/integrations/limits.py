"""What a test demands of the pipeline calls in it: each limit a pure function from a call to a complaint."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.model.errors import UsageError

if TYPE_CHECKING:
    from stepscope.session.profiled_call import ProfiledCall

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {"median": statistics.median, "max": max}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a limit found: ``broken`` fails the test, ``unchecked`` is said and does not."""

    broken: str = ""
    unchecked: str = ""


Limit = Callable[["ProfiledCall"], Iterator[Verdict]]


def step_limit(limit_ms: float, *, statistic: str = "median") -> Limit:
    """The steps of a call, step 0 and steps under a profiler left out, take at most so many ms."""
    _check_number("limit_step_ms", limit_ms)
    if statistic not in STATISTICS:
        raise UsageError(f"limit_step_ms has no statistic {statistic!r}.", remedy='Take "median" or "max".')

    def check(call: ProfiledCall) -> Iterator[Verdict]:
        steps = call.dump.denoise_steps_ms
        counted = [step for step in steps if not step.traced and step.step > 0] or list(steps)
        if not counted:
            yield Verdict(unchecked="limit_step_ms: the call has no steps")
            return
        seen_ms = STATISTICS[statistic]([step.duration_ms for step in counted])
        if seen_ms > limit_ms:
            slowest = max(counted, key=lambda step: step.duration_ms)
            yield Verdict(
                broken=f"limit_step_ms: {statistic} of {len(counted)} steps is {seen_ms:.2f} ms, more than "
                f"{limit_ms:g} ms (slowest: step {slowest.step} with {slowest.duration_ms:.2f} ms)"
            )

    return check


def stage_limit(stage: str, limit_ms: float) -> Limit:
    """The occurrences of a stage together take at most so many ms."""
    _check_number("limit_stage_ms", limit_ms)
    if not isinstance(stage, str):
        raise UsageError(f"limit_stage_ms: {stage!r} is no stage.", remedy='As in ("DecodingStage", 80).')

    def check(call: ProfiledCall) -> Iterator[Verdict]:
        seen_ms = call.stages_ms.get(stage)
        if seen_ms is None:
            known = ", ".join(call.stages_ms) or "none"
            yield Verdict(broken=f"limit_stage_ms: the call has no {stage}; its stages: {known}")
        elif seen_ms > limit_ms:
            yield Verdict(broken=f"limit_stage_ms: {stage} took {seen_ms:.2f} ms, more than {limit_ms:g} ms")

    return check


def memory_limit(limit_mb: float) -> Limit:
    """The device allocator's peak is at most so many MiB."""
    _check_number("limit_peak_memory_mb", limit_mb)

    def check(call: ProfiledCall) -> Iterator[Verdict]:
        peak_mb = call.peak_memory_mb
        if peak_mb is None:
            reason = call.dump.memory_checkpoints_reason or "nothing was read"
            yield Verdict(unchecked=f"limit_peak_memory_mb: {reason}")
        elif peak_mb > limit_mb:
            yield Verdict(broken=f"limit_peak_memory_mb: {peak_mb:.1f} MiB, more than {limit_mb:g} MiB")

    return check


def no_sync_in_loop() -> Limit:
    """No call inside the traced steps makes the host wait for the device, however short."""

    def check(call: ProfiledCall) -> Iterator[Verdict]:
        if call.trace_path is None:
            yield Verdict(unchecked="no_sync_in_loop: the call was not traced")
            return
        from stepscope.session.report import step_waits

        found = step_waits(call.trace_path)
        if not found.has_device_work:
            yield Verdict(unchecked="no_sync_in_loop: there was no device that could have been waited for")
        for wait in found.waits[:MOST_WAITS]:
            at = f" at {wait.source.file}:{wait.source.line}" if wait.source else ""
            by = f", from {wait.operator}" if wait.operator else ""
            yield Verdict(
                broken=f"no_sync_in_loop: {wait.count} {wait.call} in {found.step_count} steps{by}{at}"
            )

    return check


MOST_WAITS = 5


def _check_number(mark: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise UsageError(f"{mark}: {value!r} is no limit.", remedy="Give a number above zero.")
