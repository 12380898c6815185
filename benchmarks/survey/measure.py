"""One class: built, run plainly twice, observed once, and what came of it as a row."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from stepscope.analyse.run.assemble import assemble
from stepscope.analyse.run.reconcile import reconcile
from stepscope.capture.observer import Observer
from stepscope.model.recording import Recording
from stepscope.model.run import Environment, Workload
from survey.build import TinyPipeline, build_pipeline
from survey.components import NoConfigurationError
from survey.counting import SchedulerCounter

REPEATED_MS = 4000.0
"""Short calls are observed again until about this much is measured,"""
MOST_RUNS = 15
"""but no more often than this."""
LARGE_GAP = 0.01
"""Gaps of more than this share of the run are kept in the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Time in which no known call was open, between two known calls."""

    after: str
    before: str
    share: float  # of the whole call


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one class did. ``status``: ran, failed (by itself) or not_built."""

    name: str
    status: str
    reason: str = ""
    stages: tuple[str, ...] = ()
    steps_asked: tuple[int, ...] = ()
    steps_seen: tuple[int, ...] = ()  # one number a denoising stage
    scheduler_steps: tuple[int, ...] = ()  # calls of each scheduler's ``step``, counted without stepscope
    schedulers: tuple[str, ...] = ()  # their classes
    strength: float | None = None  # asked for, or the default: less than 1 leaves steps out
    forwards: tuple[int, ...] = ()  # the numbers of forwards that its steps have, each once
    guidance: tuple[str, ...] = ()  # what its forwards were told to be, each once
    coverage: float | None = None
    repeats: bool | None = None  # two plain runs gave the same bits
    identical: bool | None = None  # and the observed one too
    runs: int = 1  # observed ones; coverage and gaps are those of the middle one
    plain_ms: float | None = None
    observed_ms: float | None = None
    warnings: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()


def measure(name: str, *, repeated_ms: float = REPEATED_MS) -> Row:
    """Survey one class. Nothing that the class raises leaves this function."""
    try:
        tiny = build_pipeline(name)
    except NoConfigurationError as error:
        return Row(name=name, status="not_built", reason=str(error))
    except Exception as error:
        return Row(name=name, status="not_built", reason=_words(error))
    try:
        first = digest(tiny.ready()())
        call = tiny.ready()
        begin = time.perf_counter()
        with SchedulerCounter(tiny.pipeline) as counter:
            result = call()
        plain_ms = 1000 * (time.perf_counter() - begin)
        plain = [first, digest(result)]
    except Exception as error:
        return Row(name=name, status="failed", reason=_words(error), steps_asked=tiny.steps)
    seen = _observed(name, tiny, plain)
    row = replace(
        seen,
        plain_ms=round(plain_ms, 1),
        scheduler_steps=counter.numbers(),
        schedulers=counter.classes(),
        strength=tiny.strength,
    )
    return row if row.status == "failed" else _median(name, tiny, plain, row, repeated_ms)


def _median(name: str, tiny: TinyPipeline, plain: list[str], row: Row, repeated_ms: float) -> Row:
    """The row, with coverage and gaps of the middle one of several runs: a busy machine may stop one."""
    more = min(MOST_RUNS - 1, int(repeated_ms / (row.plain_ms or REPEATED_MS))) // 2 * 2
    rows = sorted([row, *(_observed(name, tiny, plain) for _ in range(more))], key=_coverage)
    middle = rows[len(rows) // 2]
    identical = None if row.identical is None else all(each.identical for each in rows)
    return replace(
        row,
        identical=identical,
        coverage=middle.coverage,
        gaps=middle.gaps,
        observed_ms=middle.observed_ms,
        runs=len(rows),
    )


def _coverage(row: Row) -> float:
    return row.coverage or 0.0


def _observed(name: str, tiny: TinyPipeline, plain: list[str]) -> Row:
    result, error = None, None
    call = tiny.ready()
    with Observer() as observer:
        progress = observer.begin(tiny.pipeline)
        try:
            result = call()
        except Exception as raised:
            error = raised
        captured = progress.finish(error, result)
    row = _row_of(name, tiny, captured.recording)
    if error is not None:
        return replace(row, status="failed", reason=f"only when observed: {_words(error)}")
    repeats = plain[0] == plain[1]
    return replace(row, repeats=repeats, identical=digest(result) == plain[1] if repeats else None)


def _row_of(name: str, tiny: TinyPipeline, recording: Recording) -> Row:
    run = assemble(
        recording,
        request_id=name,
        workload=Workload(model="tiny", pipeline_class=name),
        environment=Environment(stepscope="", python="", platform="", host=""),
    )
    dump = reconcile(run)
    denoising = dict.fromkeys(step.stage_index for step in run.steps)
    return Row(
        name=name,
        status="ran",
        stages=tuple(dict.fromkeys(str(stage.span.name) for stage in run.stages)),
        steps_asked=tiny.steps,
        steps_seen=tuple(sum(step.stage_index == stage for step in run.steps) for stage in denoising),
        forwards=tuple(sorted({len(step.forwards) for step in run.steps})),
        guidance=tuple(
            sorted({forward.label for step in run.steps for forward in step.forwards if forward.label})
        ),
        coverage=None if dump.coverage is None else round(dump.coverage, 4),
        observed_ms=None if run.total_ns is None else round(run.total_ns / 1e6, 1),
        warnings=run.warnings,
        gaps=gaps_of(recording),
    )


def gaps_of(recording: Recording) -> tuple[Gap, ...]:
    """The large gaps between known calls, in order."""
    total_ns = recording.end.host_ns - recording.start.host_ns
    open_calls, after, here = 0, "start", recording.start.host_ns
    found = []
    for edge in (*recording.edges, None):
        at = recording.end.host_ns if edge is None else edge.at.host_ns
        share = (at - here) / total_ns
        if open_calls == 0 and share > LARGE_GAP:
            found.append(Gap(after=after, before="end" if edge is None else edge.name, share=round(share, 4)))
        if edge is not None:
            open_calls += 1 if edge.entering else -1
            after, here = edge.name, at
    return tuple(found)


def digest(value: Any) -> str:
    """A hash of every bit of a pipeline's output."""
    sha = hashlib.sha256()
    _feed(sha, value)
    return sha.hexdigest()


def _feed(sha: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        sha.update(str((value.dtype, tuple(value.shape))).encode())
        sha.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    elif isinstance(value, np.ndarray):
        sha.update(str((value.dtype, value.shape)).encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Image.Image):
        sha.update(str((value.mode, value.size)).encode() + value.tobytes())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            sha.update(str(key).encode())
            _feed(sha, item)
    elif isinstance(value, (list, tuple)):
        sha.update(str(len(value)).encode())
        for item in value:
            _feed(sha, item)
    elif hasattr(value, "__dict__") and not callable(value):
        _feed(sha, vars(value))
    else:
        sha.update(repr(value).encode())


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def as_json(row: Row) -> dict[str, Any]:
    """The row as plain values."""
    return asdict(row)
