"""Runs made comparable: what was measured, under which conditions, and in what two sets of runs differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from stepscope.analyse.comparison.compare_results import Difference, Severity, Side
from stepscope.analyse.results import RankReport, RunSummary, StepTime, Trust

CLOCK_TOLERANCE = 0.05
"""GPU clocks wander by a few percent from reading to reading."""

_UNLIKE = frozenset({
    "model", "pipeline_class", "load_format", "steps", "height", "width", "frames", "outputs_per_prompt",
    "device_kind", "device_name", "world_size", "rank", "clock", "traced", "complete", "steps recorded",
    "warmed up", "measured from",
})  # fmt: skip
"""Different work, another GPU, or another way of measuring: such runs are unlike."""

_NOTES = frozenset({
    "prompt", "negative_prompt", "seed", "stepscope", "python", "platform", "host", "cpu_count", "commit",
})  # fmt: skip
"""Everything else (driver, dtype, offload, compile, attention, what was seen engaged) is a setting: either
what the comparison is about, or what confounds it."""

_COHORT_SETTINGS = frozenset({"dtype", "offload", "compile", "attention_backend"})
_LEFT_OUT = frozenset({"warmup.requests", "warmup.steady"})
_TRUSTED = Trust(ok=True)
_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One run as a comparison sees it, whether it came from a dump or from a trace."""

    path: str
    total_ms: float | None  # None: not measured, or nothing that a run can take
    stages: Mapping[str, float]  # ms by name, occurrences summed
    steps: Mapping[int, float]  # ms by index
    facts: Mapping[str, str]
    name: str = ""  # short, told apart from the other runs' of a comparison; empty: the file's
    trust: Trust = _TRUSTED
    peak_memory_bytes: int | None = None
    untypical_steps: frozenset[int] = field(default_factory=frozenset)  # traced or under a starting profiler


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Repeated runs of the same thing."""

    label: str
    runs: tuple[Observation, ...]


def observe(summary: RunSummary) -> Observation:
    """A run from its perf dump or run record."""
    return Observation(
        path=summary.path or summary.request_id,
        total_ms=summary.total_ms if summary.total_ms > 0 else None,
        stages=_summed((stage.name, stage.duration_ms) for stage in summary.stages if stage.duration_ms >= 0),
        steps={index: step.duration_ms for index, step in _numbered(summary.steps) if step.duration_ms >= 0},
        facts=_facts_of(summary),
        trust=summary.trust,
        peak_memory_bytes=summary.peak_memory_bytes,
        untypical_steps=frozenset(
            index for index, step in _numbered(summary.steps) if step.traced or step.profiler_warmup
        ),
    )


def observe_trace(rank: RankReport) -> Observation:
    """A run from one rank's trace: the GPU's span stands for the total, and everything is traced."""
    facts = {
        "measured from": "trace",
        "steps recorded": str(len(rank.steps)),
        "rank": str(rank.rank),
        "engaged.attention": rank.engaged.attention or "",
        "engaged.gemm_dtypes": ", ".join(rank.engaged.gemm_dtypes),
    }
    if rank.gpu is not None:
        facts |= {"device_name": rank.gpu.name}
    memory = [stage.peak_memory_bytes for stage in rank.stages if stage.peak_memory_bytes is not None]
    return Observation(
        path=rank.path,
        total_ms=rank.gpu.span_ms if rank.gpu and rank.gpu.span_ms > 0 else None,
        stages=_summed((stage.name, stage.duration_ms) for stage in rank.stages),
        steps={step.index: step.duration_ms for step in rank.steps},
        facts={key: value for key, value in facts.items() if value},
        peak_memory_bytes=max(memory, default=None),
    )


def whole_number(text: str | None) -> int | None:
    """A fact that counts something as a number; None where the file has something else there."""
    is_one = text is not None and text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS
    return int(text) if is_one and text else None


def side_of(cohort: Cohort) -> Side:
    """A cohort as results name it."""
    return Side(
        label=cohort.label,
        paths=tuple(run.path for run in cohort.runs),
        runs=len(cohort.runs),
        untrusted=tuple(f"{_name_of(run)}: {reason}" for run in cohort.runs for reason in run.trust.reasons),
        untrusted_runs=tuple(_name_of(run) for run in cohort.runs if run.trust.reasons),
        facts=tuple(cohort.runs[0].facts.items()),
    )


def _name_of(run: Observation) -> str:
    return run.name or PurePath(run.path).name


def differences(base: Cohort, new: Cohort) -> tuple[Difference, ...]:
    """What differs between the sides, and within a side between its runs; the gravest first."""
    left, right = _values_of(base), _values_of(new)
    keys = dict.fromkeys([*left, *right])
    found = [
        Difference(
            name=key,
            base=_shown(left.get(key, ())),
            new=_shown(right.get(key, ())),
            severity=_severity(key, known=key in left and key in right),
        )
        for key in keys
        if not _same(key, left.get(key, ()), right.get(key, ()))
    ]
    gravest = list(Severity)
    return tuple(sorted(found, key=lambda difference: gravest.index(difference.severity)))


def identifying_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that make runs a cohort: the work, its settings, the kind of GPU and the way of measuring."""
    return {
        key: value
        for key, value in facts.items()
        if key in _UNLIKE or key in _COHORT_SETTINGS or key.startswith("guidance.") or _own_dtype(key, facts)
    }


def _own_dtype(key: str, facts: Mapping[str, str]) -> bool:
    """Whether this is the dtype of a component that has another than the rest."""
    return key.startswith("component_dtypes.") and facts[key] != facts.get("dtype")


def unrecorded(cohort: Cohort) -> str | None:
    """A warning where a side does not say what it ran on: then nothing can be checked."""
    if any("device_name" in run.facts or "device_kind" in run.facts for run in cohort.runs):
        return None
    if all(run.facts.get("measured from") == "trace" for run in cohort.runs):
        said = "is a trace without GPU events, which names no device"
    else:
        said = "does not record its environment"
    return f"{cohort.label} {said}: whether the runs are alike cannot be checked"


def _facts_of(summary: RunSummary) -> dict[str, str]:
    workload = dict(summary.workload)
    facts = dict(summary.environment) | workload | {f"engaged.{key}": value for key, value in summary.engaged}
    facts |= {
        "measured from": "run",
        "steps recorded": str(len(summary.steps)),
        "traced": "yes" if any(step.traced or step.profiler_warmup for step in summary.steps) else "no",
        "complete": "yes" if summary.incomplete_reason is None else "no",
    }
    if "warmup.requests" in workload:
        facts["warmed up"] = "no" if workload["warmup.requests"] == "0" else "yes"
    return {key: value for key, value in facts.items() if key not in _LEFT_OUT}


def _numbered(steps: Sequence[StepTime]) -> list[tuple[int, StepTime]]:
    """Steps by their index, or by position where a recorder began anew with every denoising stage."""
    indices = [step.index for step in steps]
    if len(set(indices)) < len(indices):
        indices = list(range(len(steps)))
    return list(zip(indices, steps, strict=True))


def _summed(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for name, duration_ms in parts:
        sums[name] += duration_ms
    return dict(sums)


def _values_of(cohort: Cohort) -> dict[str, tuple[str, ...]]:
    """Every value that each fact has among the runs, in order of appearance."""
    keys = dict.fromkeys(key for run in cohort.runs for key in run.facts)
    return {
        key: tuple(dict.fromkeys(run.facts[key] for run in cohort.runs if key in run.facts)) for key in keys
    }


def _same(key: str, base: tuple[str, ...], new: tuple[str, ...]) -> bool:
    if key == "model":
        return {PurePath(value).name for value in base} == {PurePath(value).name for value in new}
    if key.startswith("clocks."):
        return _close([*base, *new])
    return len({*base, *new}) == 1 and bool(base) == bool(new)


def _close(values: Sequence[str]) -> bool:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return False
    return max(numbers) - min(numbers) <= CLOCK_TOLERANCE * max(abs(number) for number in numbers)


def _severity(key: str, *, known: bool) -> Severity:
    """How grave a difference is; what only one side recorded proves nothing."""
    if not known or key in _NOTES:
        return Severity.NOTE
    if key in _UNLIKE or key.startswith("guidance."):
        return Severity.UNLIKE
    if key.startswith("packages."):
        return Severity.SETTING if key in ("packages.torch", "packages.diffusers") else Severity.NOTE
    if key.startswith("clocks."):
        return Severity.SETTING if "clock" in key.split(".", 1)[1] or "mhz" in key else Severity.NOTE
    return Severity.SETTING


def _shown(values: tuple[str, ...]) -> str | None:
    return " / ".join(values) if values else None
