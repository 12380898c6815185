"""A perf dump's times, reconciled: ``PerfDump`` in, ``RunSummary`` out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stepscope.analyse.results import OutsideTime, RunSummary, StageTime, StepPartTime, StepTime
from stepscope.analyse.run.dump_trust import judge
from stepscope.analyse.run.run_findings import run_findings
from stepscope.analyse.run.step_statistics import mark_outliers, step_statistics
from stepscope.model.dump import PerfDump

_MIB = 1024 * 1024


def summarise(dump: PerfDump, *, path: str | None = None) -> RunSummary:
    """One run's stages and steps with shares, outliers, statistics and whether they may be trusted."""
    steps = _steps(dump)
    statistics = step_statistics(steps)
    stages = _stages(dump)
    moved_ms = sum(transfer.exposed_ms or 0.0 for transfer in dump.transfers)
    return RunSummary(
        request_id=dump.request_id,
        path=path,
        producer="stepscope" if dump.schema_version else "sglang",
        total_ms=dump.total_duration_ms,
        trust=judge(dump),
        stages=stages,
        steps=mark_outliers(steps, statistics, steady=(dump.warmup or {}).get("steady") is True),
        step_statistics=statistics,
        dominant_stage=_dominant(stages),
        outside=tuple(
            OutsideTime(name=part.name, duration_ms=part.duration_ms) for part in dump.outside_stages
        ),
        unaccounted_ms=_unaccounted_ms(dump, stages),
        inferred_ms=dump.inferred_ms,
        coverage=dump.coverage,
        profiler_pause_ms=dump.profiler_pause_ms,
        rank=dump.rank,
        call_id=dump.call_number,
        environment=flatten(_environment(dump)),
        workload=flatten({**dump.meta, **dump.workload, **_warmup(dump)}),
        engaged=flatten(dump.engaged),
        step_cache=dump.step_cache,
        peak_memory_bytes=_peak_memory_bytes(dump),
        incomplete_reason=dump.incomplete_reason,
        warnings=dump.warnings,
        findings=run_findings(dump),
        traced_ms=traced_ms(dump),
        traced_over_warmup=_traced_over_warmup(dump),
        moved_ms=moved_ms,
        moved_share=_share(moved_ms, dump.total_duration_ms),
        unaccounted_share=_share(_unaccounted_ms(dump, stages) or 0.0, dump.total_duration_ms),
    )


def flatten(values: Mapping[str, Any], prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Nested values as (dotted key, text), in order; nulls and empty values left out."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows.extend(flatten(value, f"{name}."))
        elif isinstance(value, (list, tuple)):
            rows.extend([(name, ", ".join(str(item) for item in value))] if value else [])
        elif value is not None and value != "":
            rows.append((name, _text(value)))
    return tuple(rows)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _stages(dump: PerfDump) -> tuple[StageTime, ...]:
    total = dump.total_duration_ms
    if dump.stages:
        return tuple(
            StageTime(
                name=stage.name,
                stage_index=stage.stage_index,
                duration_ms=stage.duration_ms,
                share=_share(stage.duration_ms, total),
                host_ms=stage.host_ms,
                device_ms=stage.device_ms,
                inferred_ms=stage.inferred_ms,
            )
            for stage in dump.stages
        )
    return tuple(
        StageTime(
            name=stage.name,
            stage_index=index,
            duration_ms=stage.duration_ms,
            share=_share(stage.duration_ms, total),
        )
        for index, stage in enumerate(dump.steps)
    )


def _steps(dump: PerfDump) -> tuple[StepTime, ...]:
    return tuple(
        StepTime(
            index=step.step,
            stage_index=step.stage_index,
            duration_ms=step.duration_ms,
            host_ms=step.host_ms,
            forwards=len(step.forwards),
            traced=step.traced,
            profiler_warmup=step.profiler_warmup,
            work=step.work,
            parts=tuple(
                StepPartTime(name=part.name, duration_ms=part.duration_ms, known=part.known)
                for part in step.parts
            ),
        )
        for step in dump.denoise_steps_ms
    )


def traced_ms(dump: PerfDump) -> float | None:
    """How much of the total lies in steps that a profiler recorded; None where none was recorded."""
    traced = [step.duration_ms for step in dump.denoise_steps_ms if step.traced]
    return sum(traced) if traced else None


def _traced_over_warmup(dump: PerfDump) -> float | None:
    """How many times as long traced steps take as one that no profiler saw, of as many forwards."""
    known = dump.warmup or {}
    last_ns, forwards = known.get("last_step_ns"), known.get("last_step_forwards")
    traced = [
        step.duration_ms
        for step in dump.denoise_steps_ms
        if step.traced
        and not step.profiler_warmup
        and step.work == "computed"
        and len(step.forwards) == forwards
    ]
    if not isinstance(last_ns, int) or last_ns <= 0 or not traced:
        return None
    return median(traced) / (last_ns / 1e6)


def _share(part_ms: float, total_ms: float) -> float:
    return part_ms / total_ms if total_ms > 0 else 0.0


def _dominant(stages: Sequence[StageTime]) -> str | None:
    """The stage name with most of the time, occurrences summed."""
    by_name: dict[str, float] = defaultdict(float)
    for stage in stages:
        by_name[stage.name] += stage.duration_ms
    return max(by_name, key=by_name.__getitem__) if by_name else None


def _unaccounted_ms(dump: PerfDump, stages: Sequence[StageTime]) -> float | None:
    if dump.unaccounted_ms is not None or not stages or dump.total_duration_ms <= 0:
        return dump.unaccounted_ms
    moved_ms = sum(transfer.exposed_ms or 0.0 for transfer in dump.transfers)
    return dump.total_duration_ms - moved_ms - sum(stage.duration_ms for stage in stages)


def _environment(dump: PerfDump) -> dict[str, Any]:
    environment = dict(dump.environment)
    if dump.commit_hash not in ("", "N/A"):
        environment.setdefault("commit", dump.commit_hash)
    if dump.clock is not None:
        environment["clock"] = dump.clock
    return environment


def _warmup(dump: PerfDump) -> dict[str, Any]:
    """How the run was warmed up; nothing where the recorder does not say."""
    known = dump.warmup or {}
    return {f"warmup.{key}": known.get(key) for key in ("requests", "steady")}


def _peak_memory_bytes(dump: PerfDump) -> int | None:
    """The highest allocation of any checkpoint; None where nothing was measured."""
    checkpoints = (dump.memory_checkpoints or {}).values()
    return max((round(point.peak_allocated_mb * _MIB) for point in checkpoints), default=None)
