"""From a run to its perf dump: sums by name, what is left over, and whether the numbers agree.

The total is a clock of its own (wall time between two synchronisations); spans share their boundaries, so
only the comparison with the total, with the steps and with the other clock can show that something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import datetime, timezone

from stepscope.analyse.run.agreement import trust_of
from stepscope.model.dump import (
    DUMP_SCHEMA_VERSION,
    DumpForward,
    DumpMemory,
    DumpStage,
    DumpStep,
    DumpStepPart,
    DumpTransfer,
    NamedDuration,
    PerfDump,
)
from stepscope.model.run import Forward, MemoryReading, Run, StageRun, StepRun, Transfer

NS_PER_MS = 1_000_000
BYTES_PER_MIB = 1024**2
DUMP_TAG = "cli_generate"
"""What SGLang's command line writes; scripts select on it."""


def reconcile(run: Run) -> PerfDump:
    """The perf dump of a run, complete or not. Pure: the same run gives the same dump."""
    dump = _measured(run)
    return replace(dump, trust=trust_of(run, dump))


def _measured(run: Run) -> PerfDump:
    """Everything but the judgement."""
    stages_ns = sum(stage.span.duration_ns for stage in run.stages)
    inferred_ns = sum(stage.inferred_ns for stage in run.stages)
    exposed_ns = sum(transfer.exposed_ns or 0 for transfer in run.transfers)  # in no stage, but in the total
    total_ns = run.total_ns
    return PerfDump(
        timestamp=_utc(run.created_unix_ns),
        request_id=run.request_id,
        commit_hash=run.environment.commit or "N/A",
        tag=DUMP_TAG,
        total_duration_ms=_ms(stages_ns + exposed_ns if total_ns is None else total_ns),
        steps=sum_by_name((stage.span.name, stage.span.duration_ns) for stage in run.stages),
        denoise_steps_ms=tuple(_step(step) for step in run.steps),
        memory_checkpoints={item.name: _memory(item.reading) for item in run.memory} or None,
        meta={"prompt": run.workload.prompt, "model": run.workload.model},
        schema_version=DUMP_SCHEMA_VERSION,
        memory_checkpoints_reason=None if run.memory else run.memory_reason or "no reading was taken",
        rank=run.rank,
        call_number=run.call_id,
        world_size=run.world_size,
        stages=tuple(_stage(stage, run) for stage in run.stages),
        outside_stages=sum_by_name((item.name, item.duration_ns) for item in run.outside),
        returned_ms=_since_start(run, None if run.ends is None else run.ends.returned_ns),
        device_done_ms=_since_start(run, None if run.ends is None else run.ends.device_done_ns),
        on_host_ms=_since_start(run, None if run.ends is None else run.ends.on_host_ns),
        unaccounted_ms=None if total_ns is None else _ms(total_ns - stages_ns - exposed_ns),
        inferred_ms=_ms(inferred_ns),
        coverage=None if not total_ns else _share(stages_ns - inferred_ns + exposed_ns, total_ns),
        profiler_pause_ms=_ms(sum(pause.duration_ns for pause in run.pauses)),
        traced_ms=_traced_ms(run),
        transfers=tuple(_transfer(transfer) for transfer in run.transfers),
        clock=str(run.clock.kind),
        clock_self_test=run.clock.self_test,
        environment=asdict(run.environment),
        workload=asdict(run.workload),
        engaged=asdict(run.engaged),
        step_cache=run.step_cache,
        warmup=None if run.warmup is None else asdict(run.warmup),
        traces=tuple(asdict(trace) for trace in run.traces),
        outputs=tuple(asdict(output) for output in run.outputs),
        warnings=run.warnings,
        incomplete_reason=run.incomplete_reason,
    )


def sum_by_name(items: Iterable[tuple[str, int]]) -> tuple[NamedDuration, ...]:
    """Durations in ns summed by name, in order of first occurrence."""
    sums: dict[str, int] = {}
    for name, duration_ns in items:
        sums[name] = sums.get(name, 0) + duration_ns
    return tuple(NamedDuration(name=str(name), duration_ms=_ms(total)) for name, total in sums.items())


def _stage(stage: StageRun, run: Run) -> DumpStage:
    segments = stage.span.segments
    return DumpStage(
        name=stage.span.name,
        stage_index=stage.stage_index,
        duration_ms=_ms(stage.span.duration_ns),
        start_ms=(_since_start(run, segments[0].host_start_ns) or 0.0) if segments else 0.0,
        host_ms=_ms(stage.span.host_ns),
        device_ms=_optional_ms(stage.span.device_ns),
        inferred_ms=_ms(stage.inferred_ns),
    )


def _step(step: StepRun) -> DumpStep:
    return DumpStep(
        step=step.index,
        duration_ms=_ms(step.span.duration_ns),
        stage_index=step.stage_index,
        host_ms=_ms(step.span.host_ns),
        device_ms=_optional_ms(step.span.device_ns),
        forwards=tuple(_forward(forward) for forward in step.forwards),
        solver_order=step.solver_order,
        traced=step.traced,
        profiler_warmup=step.profiler_warmup,
        work=str(step.work),
        parts=tuple(
            DumpStepPart(name=part.name, duration_ms=_ms(part.duration_ns), known=part.known)
            for part in step.parts
        ),
    )


def _forward(forward: Forward) -> DumpForward:
    return DumpForward(
        component=forward.component,
        duration_ms=_ms(forward.span.duration_ns),
        host_ms=_ms(forward.span.host_ns),
        batch=forward.batch,
        work=str(forward.work),
        label=forward.label,
    )


def _transfer(transfer: Transfer) -> DumpTransfer:
    return DumpTransfer(
        component=transfer.component,
        kind=str(transfer.kind),
        count=transfer.count,
        bytes=transfer.bytes,
        pinned=transfer.pinned,
        duration_ms=_ms(transfer.duration_ns),
        exposed_ms=_optional_ms(transfer.exposed_ns),
        stage_index=transfer.stage_index,
    )


def _memory(reading: MemoryReading) -> DumpMemory:
    return DumpMemory(
        allocated_mb=_mib(reading.allocated_bytes),
        reserved_mb=_mib(reading.reserved_bytes),
        peak_allocated_mb=_mib(reading.peak_allocated_bytes),
        peak_reserved_mb=_mib(reading.peak_reserved_bytes),
    )


def _traced_ms(run: Run) -> float | None:
    """Time in steps that a profiler recorded; None where there are none."""
    traced = [step.span.duration_ns for step in run.steps if step.traced]
    return _ms(sum(traced)) if traced else None


def _since_start(run: Run, host_ns: int | None) -> float | None:
    """Milliseconds from the start of the pipeline call to a host time, profiler pauses left out."""
    if run.ends is None or host_ns is None:
        return None
    paused_ns = sum(
        max(0, min(pause.host_end_ns, host_ns) - max(pause.host_start_ns, run.ends.start_ns))
        for pause in run.pauses
    )
    return _ms(host_ns - run.ends.start_ns - paused_ns)


def _utc(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, tz=timezone.utc).isoformat()


def _ms(duration_ns: int) -> float:
    return duration_ns / NS_PER_MS


def _share(part_ns: int, whole_ns: int) -> float:
    return max(0.0, min(1.0, part_ns / whole_ns))


def _optional_ms(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else _ms(duration_ns)


def _mib(size_bytes: int) -> float:
    return round(size_bytes / BYTES_PER_MIB, 2)
