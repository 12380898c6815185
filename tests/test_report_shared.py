"""Known truths of the recorded traces beside the clone, through reading, analysis and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from stepscope.analyse.report import AnalysedTrace, analyse_trace, assemble
from stepscope.analyse.results import RankReport
from stepscope.record.open import read_trace
from stepscope.render.report.report_json import render_json

# Figures of shared/traces/README.md: kernels, span in ms, busy in per cent.
ROWS = {
    "qwen_image_full_5_steps_ops.trace.json.gz": (55337, 1804.4, 95.4),
    "qwen_image_full_5_steps_cuda_only.trace.json.gz": (55337, 1805.4, 95.4),
    "qwen_image_4layer_all_stages_stack_memory.trace.json.gz": (3212, 237.3, 8.0),
    "qwen_image_4layer_compiled_blocks.trace.json.gz": (1892, 134.4, 11.7),
    "qwen_image_4layer_group_offload.trace.json.gz": (3131, 13123.0, 90.6),
    "wan_4layer_unipc_stack.trace.json.gz": (6082, 692.2, 69.8),
    "ulysses2-global-rank0.trace.json.gz": (4884, 398.9, 34.1),
    "ulysses2-global-rank1.trace.json.gz": (4884, 407.0, 91.9),
}
FULL, CUDA_ONLY, STACKS, COMPILED, OFFLOAD, WAN, RANK0, RANK1 = ROWS
SGLANG = "engines/sglang_cpu_8_steps_asked_3.trace.json.gz"
VLLM_OMNI = "engines/vllm_omni_cpu_uniproc.trace.json.gz"

Analysed = Callable[[str], AnalysedTrace]


@pytest.fixture(scope="session")
def analysed(shared_traces: Path) -> Analysed:
    """A shared trace by name, analysed once a session; its path is its bare name."""

    @cache
    def of(name: str) -> AnalysedTrace:
        path = shared_traces / name
        return analyse_trace(replace(read_trace(path), path=path.name))

    return of


def stages(rank: RankReport) -> dict[str, int]:
    return {stage.name: stage.kernel_count for stage in rank.stages}


@pytest.mark.parametrize("name", ROWS)
def test_kernels_span_and_busy_share_are_those_of_the_traces_readme(analysed: Analysed, name: str) -> None:
    """Counts exactly, spans to 0.1 ms (13,123 is given to 1 ms), busy to 0.1 point."""
    kernels, span_ms, busy_percent = ROWS[name]
    gpu = analysed(name).rank.gpu

    assert gpu is not None
    assert gpu.kernel_count == kernels
    assert gpu.span_ms == pytest.approx(span_ms, abs=0.5 if span_ms > 10_000 else 0.1)
    assert 100 * gpu.busy_ratio == pytest.approx(busy_percent, abs=0.1)


@pytest.mark.parametrize("name", [FULL, CUDA_ONLY])
def test_each_of_five_steps_launches_10881_kernels(analysed: Analysed, name: str) -> None:
    """By ProfilerStep annotations, and by repetition where there is no mark at all."""
    rank = analysed(name).rank

    assert [step.kernel_count for step in rank.steps] == [10881] * 5
    assert [step.forwards for step in rank.steps] == [2] * 5
    assert [step.inferred for step in rank.steps] == [name == CUDA_ONLY] * 5
    assert rank.outside_kernel_count == 932
    assert rank.step_statistics is not None
    assert rank.step_statistics.uniform
    assert rank.step_statistics.median_ms == pytest.approx(351, abs=3)


def test_profiler_steps_keep_their_numbers(analysed: Analysed) -> None:
    """ProfilerStep#1 to #5."""
    assert [step.index for step in analysed(FULL).rank.steps] == [1, 2, 3, 4, 5]


def test_launches_inside_the_annotations_are_counted(analysed: Analysed) -> None:
    """Pipeline 3,212, TextEncodingStage 254, DecodingStage 536."""
    rank = analysed(STACKS).rank
    annotations = {row.name: row.kernel_count for row in rank.annotations}

    assert annotations == {"Pipeline": 3212, "TextEncodingStage": 254, "DecodingStage": 536}
    assert (stages(rank)["TextEncodingStage"], stages(rank)["DecodingStage"]) == (254, 536)
    assert sum(stages(rank).values()) + rank.outside_kernel_count == 3212
    assert len(rank.steps) == 3


@pytest.mark.parametrize("name", [STACKS, WAN])
def test_kernels_have_a_source_where_stacks_were_recorded(analysed: Analysed, name: str) -> None:
    """At least 95 %; Kineto's lines are those of definitions."""
    rank = analysed(name).rank

    assert rank.attributed_share is not None
    assert rank.attributed_share >= 0.95
    assert all(row.source is not None and not row.source.line_exact for row in rank.kernels)


def test_forwards_carry_the_denoisers_class_and_their_step(analysed: Analysed) -> None:
    """Two calls of WanTransformer3DModel in each of four steps, from frames."""
    forwards = analysed(WAN).rank.forwards

    assert [row.step for row in forwards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {row.component for row in forwards} == {"WanTransformer3DModel"}
    assert all(row.kernel_count > 200 for row in forwards)


@pytest.mark.parametrize("name", [COMPILED, OFFLOAD, RANK0, RANK1])
def test_three_steps_are_inferred_where_nothing_marks_them(analysed: Analysed, name: str) -> None:
    """From the repetition of the kernel sequence; two forwards each."""
    rank = analysed(name).rank

    assert [(step.index, step.inferred, step.forwards) for step in rank.steps] == [
        (0, True, 2),
        (1, True, 2),
        (2, True, 2),
    ]


@pytest.mark.parametrize(
    ("name", "stage", "bound_by"),
    [
        (FULL, "DenoisingStage", "gpu"),
        (COMPILED, "DenoisingStage", "host"),
        (OFFLOAD, "DenoisingStage", "copy"),
        (RANK0, "DenoisingStage", "host"),
        (RANK1, "DenoisingStage", "communication"),
        (WAN, "DecodingStage", "gpu"),
    ],
)
def test_what_a_stage_waits_for(analysed: Analysed, name: str, stage: str, bound_by: str) -> None:
    """The verdicts that the traces were recorded to show."""
    assert [row.bound_by for row in analysed(name).rank.stages if row.name == stage] == [bound_by]


def test_the_late_rank_is_named(analysed: Analysed) -> None:
    """Rank 0's host is late; rank 1 waits in NCCL."""
    report = assemble((), (), [analysed(RANK0), analysed(RANK1)])
    late, waiting = report.ranks
    finding = late.findings[0]

    assert (late.rank, waiting.rank) == (0, 1)
    assert finding.id == "communication.straggler"
    assert finding.title.startswith("Rank 0 is late")
    assert finding.cost_ms == pytest.approx(239, abs=3)
    assert waiting.gpu is not None
    assert waiting.gpu.exposed_communication_ms == pytest.approx(243, abs=1)


def test_findings_name_what_the_traces_were_recorded_to_show(analysed: Analysed) -> None:
    """Offloading, launch-bound, a slow step with its cause, layout transposes, casts."""
    found = {name: [finding.id for finding in analysed(name).rank.findings] for name in ROWS}

    assert found[OFFLOAD][0] == "copies.offload_exposed"
    assert found[COMPILED][0] == "host.launch_bound"
    assert {"steps.slow", "kernels.layout_transposes", "kernels.fp32_casts"} <= set(found[WAN])
    assert "kernels.unfused_chains" in found[FULL]


def test_the_slow_unipc_step_says_what_the_host_did(analysed: Analysed) -> None:
    """Its third scheduler step takes 65 ms on the host, in a first linear solve."""
    steps = analysed(WAN).rank.steps

    assert [step.outlier is None for step in steps] == [True, True, False, True]
    assert "aten::linalg_lu_factor_ex" in (steps[2].outlier or "")
    assert "scheduling_unipc_multistep.py" in (steps[2].outlier or "")


def test_sglangs_own_trace_holds_one_step_more_than_asked(analysed: Analysed) -> None:
    """Steps 1 to 4; the name says 3."""
    rank = analysed(SGLANG).rank

    assert [step.index for step in rank.steps] == [1, 2, 3, 4]
    assert rank.gpu is None
    assert rank.findings[0].id == "recording.step_count"
    assert rank.findings[0].title == "4 steps are recorded, the name says 3"


def test_vllm_omnis_trace_gives_steps_and_stages_from_frames(analysed: Analysed) -> None:
    """It has pipeline_forward and no step marks."""
    rank = analysed(VLLM_OMNI).rank

    assert [(step.index, step.forwards, step.inferred) for step in rank.steps] == [
        (i, 2, True) for i in range(8)
    ]
    assert {"TextEncodingStage", "DenoisingStage", "DecodingStage"} <= set(stages(rank))


def test_sglangs_stage_spans_are_stages(analysed: Analysed) -> None:
    """STAGE InputValidationStage and its likes."""
    rank = analysed("engines/sglang_cpu_full_stages.trace.json.gz").rank

    assert list(stages(rank)) == [
        "InputValidationStage",
        "TextEncodingStage",
        "LatentPreparationStage",
        "TimestepPreparationStage",
        "DenoisingStage",
    ]
    assert not any(stage.inferred for stage in rank.stages)


def test_nsight_gives_the_same_answers(analysed: Analysed) -> None:
    """NVTX ranges: TextEncodingStage twice, denoising_step_0 to 5, DecodingStage."""
    rank = analysed("qwen_image_4layer.nsys.sqlite.gz").rank

    assert rank.gpu is not None
    assert rank.gpu.kernel_count == 5626
    assert list(stages(rank)) == ["TextEncodingStage", "DenoisingStage", "DecodingStage"]
    assert [(step.index, step.inferred, step.kernel_count) for step in rank.steps] == [
        (i, False, 801) for i in range(6)
    ]


@pytest.mark.parametrize("name", [*ROWS, SGLANG, VLLM_OMNI])
def test_nothing_in_the_shared_traces_is_untrusted(analysed: Analysed, name: str) -> None:
    """They are whole; a false alarm is as bad as a missed one."""
    assert analysed(name).untrusted == ()


@pytest.mark.parametrize("name", ROWS)
def test_parts_add_up(analysed: Analysed, name: str) -> None:
    """Compute, exposed communication, exposed copies and idle are the span; idle causes are the idle time."""
    gpu = analysed(name).rank.gpu

    assert gpu is not None
    parts = gpu.compute_ms + gpu.exposed_communication_ms + gpu.exposed_copy_ms + gpu.idle_ms
    assert parts == pytest.approx(gpu.span_ms * gpu.device_count)
    assert sum(cause.total_ms for cause in gpu.idle_causes) == pytest.approx(gpu.idle_ms)


def test_the_names_that_others_rely_on_are_in_the_json(analysed: Analysed) -> None:
    """Issue 3 lists them."""
    report = json.loads(render_json(assemble(["a"], (), [analysed(WAN)])))
    rank = report["ranks"][0]

    assert {"schema_version", "source", "trust", "warnings", "runs", "ranks"} <= set(report)
    assert set(report["trust"]) == {"ok", "reasons"}
    assert {
        "name", "kernel_count", "span_ms", "busy_ms", "busy_ratio", "compute_ms", "communication_ms",
        "exposed_communication_ms", "copy_ms", "exposed_copy_ms", "idle_ms",
    } <= set(rank["gpu"])  # fmt: skip
    assert {
        "name", "stage_index", "start_ms", "duration_ms", "gpu_busy_ms", "share", "kernel_count", "bound_by",
    } <= set(rank["stages"][0])  # fmt: skip
    assert {
        "index", "stage_index", "duration_ms", "gpu_busy_ms", "kernel_count", "forwards", "outlier",
        "inferred",
    } <= set(rank["steps"][0])  # fmt: skip
    assert {"name", "total_ms", "share", "count", "copy_count"} <= set(rank["categories"][0])
    assert sum(row["count"] for row in rank["categories"]) == rank["gpu"]["kernel_count"]
    assert {"name", "category", "count", "total_ms", "share", "mean_us", "source"} <= set(rank["kernels"][0])
    assert {"file", "line", "line_exact", "function"} <= set(rank["kernels"][0]["source"])
    assert {"transfers", "engaged"} <= set(rank)
