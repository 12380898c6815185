"""Reports made by hand, for the tests of the views: each one a situation that users meet."""

from __future__ import annotations

from dataclasses import replace

from report_parts import image_rank, image_run, stage_times, statistics_of
from stepscope.analyse.results import (
    REPORT_SCHEMA_VERSION,
    EngagedView,
    Finding,
    RankReport,
    Report,
    RunSummary,
    StageTime,
    StepTime,
    Trust,
)


def normal() -> Report:
    """An image run with its trace: trusted, uniform, GPU-bound."""
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        source=("runs/3f2a9c/perf.json", "logs/3f2a9c-5_steps-global-rank0.trace.json.gz"),
        trust=Trust(ok=True),
        warnings=("3 of 486,881 events had no name and were skipped",),
        runs=(image_run(),),
        ranks=(image_rank(),),
    )


def untrusted_dump() -> Report:
    """A dump alone, SGLang's, whose steps hold the profiler's stop."""
    durations = [45.2, 107.1, 128.3, 128.1, 127.9, 21_402.6, 128.0, 128.2]
    stages = {"TextEncodingStage": 30.5, "DenoisingStage": 22_195.4, "DecodingStage": 0.006}
    run = RunSummary(
        request_id="sglang-1",
        path="sglang.perf.json",
        producer="sglang",
        total_ms=22_240.1,
        trust=Trust(ok=False, reasons=("step 0 takes 0.35 of the median: enqueue time, not work",)),
        stages=tuple(replace(stage, host_ms=None) for stage in stage_times(stages, 22_240.1)),
        steps=tuple(
            StepTime(
                index=index,
                stage_index=None,
                duration_ms=duration,
                outlier="it holds the profiler's stop and export" if index == 5 else None,
            )
            for index, duration in enumerate(durations)
        ),
        step_statistics=statistics_of(durations, uniform=False, basis="all 8 steps of the dump"),
        dominant_stage="DenoisingStage",
        warnings=(
            "the dump has no clock: host times around asynchronous launches cannot be told from durations",
        ),
    )
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        source=("sglang.perf.json",),
        trust=Trust(
            ok=False,
            reasons=(
                "step times look like enqueue times: step 0 takes 45.2 ms where the median is 128.1 ms",
                "step 5 takes 167 times the median: the profiler stopped inside it",
                "DecodingStage of 0.006 ms cannot have decoded anything",
            ),
        ),
        warnings=(),
        runs=(run,),
        ranks=(),
    )


def video() -> Report:
    """A video run with two experts: steps change where the second takes over, and one step compiles."""
    durations = [2_410.0 + index % 3 for index in range(40)]
    durations[13:] = [1_980.0 + index % 3 for index in range(27)]
    durations[13] = 9_240.0
    words = {13: "transformer_2 runs for the first time: 38 compilations"}
    stages = {
        "TextEncodingStage": 410.0,
        "ImageVAEEncodingStage": 690.0,
        "DenoisingStage": 92_103.0,
        "DecodingStage": 6_912.0,
        "PostprocessingStage": 140.0,
    }
    run = replace(
        image_run(),
        request_id="wan-i2v",
        path="runs/wan-i2v/perf.json",
        total_ms=100_301.0,
        stages=stage_times(stages, 100_301.0),
        steps=tuple(
            StepTime(
                index=index,
                stage_index=2,
                duration_ms=duration,
                host_ms=88.0,
                forwards=2,
                work="skipped" if index in {30, 32} else "computed",
                outlier=words.get(index),
                traced=index in {1, 2},
                profiler_warmup=index == 1,
            )
            for index, duration in enumerate(durations)
        ),
        step_statistics=statistics_of(durations, uniform=False, basis="38 computed, untraced steps"),
        workload=(("model", "Wan-AI/Wan2.2-I2V-A14B-Diffusers"), ("frames", "81"), ("offload", "model")),
        profiler_pause_ms=1_310.0,
    )
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        source=("runs/wan-i2v/perf.json",),
        trust=Trust(ok=True),
        warnings=(),
        runs=(run,),
        ranks=(),
    )


def two_ranks() -> Report:
    """Two ranks of one request: rank 0's host is late, so rank 1 waits inside NCCL kernels."""
    first = image_rank()
    assert first.gpu is not None
    late = replace(
        first,
        path="logs/u2-3_steps-global-rank0.trace.json.gz",
        request_id="u2",
        event_count=51_627,
        gpu=replace(
            first.gpu, span_ms=398.9, busy_ratio=0.341, busy_ms=136.0, idle_ms=262.9, kernel_count=4_884
        ),
        stages=(replace(first.stages[0], bound_by="host"),),
        step_statistics=None,
        steps=first.steps[:2],
        memory=(),
    )
    waiting = replace(
        late,
        rank=1,
        path="logs/u2-3_steps-global-rank1.trace.json.gz",
        event_count=52_235,
        gpu=replace(
            first.gpu,
            span_ms=407.0,
            busy_ratio=0.919,
            busy_ms=374.0,
            communication_ms=244.0,
            exposed_communication_ms=239.5,
            idle_ms=33.0,
            kernel_count=4_884,
        ),
        stages=(replace(first.stages[0], bound_by="communication"),),
        findings=(
            Finding(
                id="rank_skew",
                title="Rank 1 waits for rank 0 inside NCCL kernels",
                evidence="NCCL kernels take 244.0 ms on rank 1 and 5.1 ms on rank 0.",
                cost_ms=239.5,
                source=None,
                remedy="Make rank 0's host faster: it launches late in 262.9 ms of 398.9 ms.",
            ),
        ),
    )
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        source=(late.path, waiting.path),
        trust=Trust(ok=True),
        warnings=(),
        runs=(),
        ranks=(late, waiting),
    )


def cpu_only() -> Report:
    """A trace without a GPU event and without a step: next to nothing is known."""
    rank = RankReport(
        rank=0,
        path="cpu.trace.json",
        request_id=None,
        source="torch_profiler",
        event_count=1_204,
        gpu=None,
        stages=(),
        steps=(),
        categories=(),
        transfers=(),
        kernels=(),
        engaged=EngagedView(attention=None, gemm_dtypes=(), compiled_kernel_share=0.0, graph_replays=0),
    )
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        source=("cpu.trace.json",),
        trust=Trust(ok=True),
        warnings=("the trace has no GPU events: GPU numbers are left out",),
        runs=(),
        ranks=(rank,),
    )


def several_runs() -> Report:
    """Two runs of the same workload, the second incomplete."""
    second = replace(
        image_run(),
        request_id="9b41d0",
        path="runs/9b41d0/perf.json",
        trust=Trust(ok=False, reasons=("the run is incomplete",)),
        incomplete_reason="OutOfMemoryError in DecodingStage",
    )
    return replace(normal(), runs=(image_run(), second), ranks=())


def previews() -> Report:
    """A callback decodes a preview in each of twelve steps: two stages alternate."""
    pairs = [("DenoisingStage", 50.0 + 0.25 * at, "DecodingStage", 15.0 + 0.1 * at) for at in range(12)]
    durations = [("TextEncodingStage", 8.0)]
    durations += [part for one in pairs for part in (one[:2], one[2:])]
    stages = tuple(
        StageTime(
            name=name,
            stage_index=index,
            duration_ms=ms,
            share=ms / 850.0,
            host_ms=ms / 2,
            inferred_ms=15.0 if name == "DenoisingStage" else 0.0,
        )
        for index, (name, ms) in enumerate(durations)
    )
    steps = [50.0 + 0.25 * at for at in range(12)]
    run = replace(
        image_run(),
        request_id="previews",
        path="perf.json",
        total_ms=850.0,
        stages=stages,
        steps=tuple(
            StepTime(index=at, stage_index=1 + 2 * at, duration_ms=ms, forwards=2)
            for at, ms in enumerate(steps)
        ),
        step_statistics=statistics_of(steps, uniform=True, basis="all steps"),
        unaccounted_ms=12.9,
        inferred_ms=180.0,
    )
    return replace(normal(), source=("perf.json",), warnings=(), runs=(run,), ranks=())


EVERY = {
    "normal": normal,
    "untrusted_dump": untrusted_dump,
    "video": video,
    "two_ranks": two_ranks,
    "cpu_only": cpu_only,
    "several_runs": several_runs,
    "previews": previews,
}
"""Name of the golden files -> the report."""
