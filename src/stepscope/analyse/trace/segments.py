"""The parts of a run in which work is issued, in order: denoiser calls, what lies between them, stages."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.run import Run, StepRun

NO_STEP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """From here on, until the next boundary, the host was in this part. Equal labels mean the same part."""

    at_ns: int
    label: str
    step: int = NO_STEP


def boundaries(run: Run) -> list[Boundary]:
    """Where each part of a run begins, by host time: a stage, a denoiser's call, what follows it."""
    found: list[tuple[int, int, Boundary]] = []
    seen: dict[str, int] = {}

    def add(at_ns: int, label: str, step: int = NO_STEP) -> None:
        found.append((at_ns, len(found), Boundary(at_ns=at_ns, label=label, step=step)))

    for stage in run.stages:
        name, count = stage.span.name, seen.get(stage.span.name, 0)
        seen[name] = count + 1
        for segment in stage.span.segments:
            add(segment.host_start_ns, f"{name} {count}")
            add(segment.host_end_ns, "between stages")
    for step in run.steps:
        for at_ns, label in _of_step(step):
            add(at_ns, label, step.index)
    return [boundary for _, _, boundary in sorted(found, key=lambda entry: entry[:2])]


def _of_step(step: StepRun) -> list[tuple[int, str]]:
    marks = [(segment.host_start_ns, "step begins") for segment in step.span.segments]
    calls: dict[str, int] = {}
    for forward in step.forwards:
        number = calls.get(forward.component, 0)
        calls[forward.component] = number + 1
        label = f"{forward.component} {number}"
        for segment in forward.span.segments:
            marks.append((segment.host_start_ns, f"forward {label}"))
            marks.append((segment.host_end_ns, f"after {label}"))
    marks += [(segment.host_end_ns, "between steps") for segment in step.span.segments[-1:]]
    return sorted(marks, key=lambda mark: mark[0])
