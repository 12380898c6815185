"""Hand-made runs for tests: times in milliseconds, one host thread, no device unless asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepscope.model.run import (
    Anchor,
    Clock,
    Environment,
    Forward,
    Run,
    Segment,
    Span,
    StageRun,
    StepRun,
    ThreeEnds,
    Workload,
)
from stepscope.model.vocabulary import ClockKind, Stage

MS = 1_000_000


def span(name: str, start_ns: int, end_ns: int, *, device: bool = False, thread: int | None = None) -> Span:
    return Span(
        name=name,
        segments=(
            Segment(
                host_start_ns=start_ns,
                host_end_ns=end_ns,
                device_start_ns=start_ns if device else None,
                device_end_ns=end_ns if device else None,
            ),
        ),
        device="cuda:0" if device else None,
        thread=thread,
    )


def stage(name: str, index: int, start_ns: int, end_ns: int, **keywords: int) -> StageRun:
    return StageRun(
        span=span(name, start_ns, end_ns), stage_index=index, inferred_ns=keywords.get("inferred_ns", 0)
    )


def step(index: int, start_ns: int, end_ns: int, *, stage_index: int = 1, traced: bool = False) -> StepRun:
    middle = (start_ns + end_ns) // 2
    return StepRun(
        index=index,
        stage_index=stage_index,
        span=span(f"denoising_step_{index}", start_ns, end_ns),
        forwards=(
            Forward(span=span("forward_transformer", start_ns, middle), component="transformer", batch=1),
        ),
        traced=traced,
    )


def make_run(
    stages: Sequence[StageRun] = (),
    steps: Sequence[StepRun] = (),
    *,
    total_ns: int | None = None,
    anchors: Sequence[Anchor] = (Anchor(unix_ns=1_000_000_000, host_ns=0),),
    **further: object,
) -> Run:
    end_ns = max((item.span.segments[-1].host_end_ns for item in stages), default=0)
    run = Run(
        request_id="request",
        call_id=0,
        clock=Clock(kind=ClockKind.HOST, self_test="the host does the work"),
        environment=Environment(stepscope="0", python="3", platform="test", host="test"),
        workload=Workload(model="tiny/test", pipeline_class="TestPipeline", prompt="a prompt"),
        anchors=tuple(anchors),
        ends=ThreeEnds(start_ns=0, returned_ns=end_ns, device_done_ns=end_ns),
        total_ns=end_ns if total_ns is None else total_ns,
        stages=tuple(stages),
        steps=tuple(steps),
    )
    return replace(run, **further)  # type: ignore[arg-type]


def three_stages(step_ms: float = 10, step_count: int = 4, traced: Sequence[int] = ()) -> Run:
    """Text encoding 5 ms, ``step_count`` steps, decoding 5 ms, from host time 0."""
    step_ns = int(step_ms * MS)
    start_ns = 5 * MS
    end_ns = start_ns + step_count * step_ns
    return make_run(
        [
            stage(Stage.TEXT_ENCODING, 0, 0, start_ns),
            stage(Stage.DENOISING, 1, start_ns, end_ns),
            stage(Stage.DECODING, 2, end_ns, end_ns + 5 * MS),
        ],
        [
            step(index, start_ns + index * step_ns, start_ns + (index + 1) * step_ns, traced=index in traced)
            for index in range(step_count)
        ],
    )
