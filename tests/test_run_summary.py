"""What `generate` prints of a run: golden files at 100 columns, and what must never be missing."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reports import previews
from runs import MS, stage, step, three_stages
from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.summarise import summarise
from stepscope.model.run import (
    Engaged,
    Environment,
    MemoryCheckpoint,
    MemoryReading,
    Output,
    OutsideRun,
    Pause,
    Run,
    TraceWindow,
    Transfer,
    Warmup,
    Workload,
)
from stepscope.model.vocabulary import CopyKind, Outside, Stage
from stepscope.render.report.calls_summary import CallSeen, render_calls_summary
from stepscope.render.report.run_summary import (
    RunFiles,
    render_run_summary,
    run_header,
    warmup_sentence,
    write_run_summary,
    write_runs_together,
)

GIB = 1024**3


NO_FILES = RunFiles()


def rendered(run: Run, files: RunFiles = NO_FILES, width: int = 100) -> str:
    return render_run_summary(summarise(reconcile(run)), run, files, width)


def full_run() -> Run:
    """Twelve steps, an offloaded transformer, a trace, a picture: everything the summary can show."""
    run = three_stages(step_ms=40, step_count=12, traced=range(1, 6))
    steps = (*run.steps[:8], step(8, 325 * MS, 405 * MS), *run.steps[9:])
    shifted = [replace(item, index=item.index) for item in steps[:9]]
    shifted += [step(i, (405 + 40 * (i - 9)) * MS, (445 + 40 * (i - 9)) * MS) for i in range(9, 12)]
    reading = MemoryReading(
        allocated_bytes=40 * GIB,
        reserved_bytes=44 * GIB,
        peak_allocated_bytes=53 * GIB,
        peak_reserved_bytes=56 * GIB,
    )
    return replace(
        run,
        request_id="5e0f3a4c",
        total_ns=3_931 * MS,
        stages=(
            run.stages[0],
            stage(Stage.DENOISING, 1, 5 * MS, 525 * MS, inferred_ns=3 * MS),
            stage(Stage.DECODING, 2, 525 * MS, 530 * MS),
        ),
        steps=tuple(shifted),
        environment=Environment(
            stepscope="0",
            python="3.12",
            platform="Linux",
            host="h",
            device_kind="cuda",
            device_name="NVIDIA H200",
        ),
        workload=Workload(
            model="Qwen/Qwen-Image",
            pipeline_class="QwenImagePipeline",
            load_format="dummy",
            prompt="a cat",
            seed=0,
            steps=12,
            guidance={"true_cfg_scale": 4.0},
            height=1024,
            width=1024,
            dtype="bfloat16",
            offload="model",
            compile="regional",
            attention_backend="flash",
        ),
        engaged=Engaged(attention="native", compiled_modules=60, compile_events=2, gemm_dtype="bfloat16"),
        outside=(
            OutsideRun(name=Outside.MODEL_LOADING, host_start_ns=0, host_end_ns=13_120 * MS),
            OutsideRun(name=Outside.WARMUP, host_start_ns=0, host_end_ns=900 * MS),
        ),
        pauses=(Pause(reason="profiler start", host_start_ns=5 * MS, host_end_ns=6 * MS),),
        transfers=(
            Transfer(
                component="transformer",
                kind=CopyKind.HOST_TO_DEVICE,
                count=1,
                bytes=38 * GIB,
                pinned=False,
                duration_ns=3_400 * MS,
                exposed_ns=3_400 * MS,
                stage_index=1,
            ),
        ),
        memory=(MemoryCheckpoint(name="after_forward", reading=reading),),
        warmup=Warmup(
            requests=3,
            steps_each=2,
            steady=False,
            reason="the allocator grew by 64 MiB",
            last_step_ns=32 * MS,
            last_step_forwards=1,
        ),
        traces=(
            TraceWindow(
                path="/runs/logs/5e0f3a4c-5_steps-global-rank0.trace.json.gz",
                steps=(1, 2, 3, 4, 5),
                full_stages=False,
                asked=5,
            ),
        ),
        outputs=(Output(path="/runs/outputs/a_cat.png", sha256="0", kind="image"),),
        warnings=("random weights (seed 0): timing is real, the picture is not",),
    )


FILES = RunFiles(perf_dump=Path("/runs/perf.json"), run_directory=Path("/runs/run"))


def test_a_whole_run(golden: Callable[[str, str], None]) -> None:
    """Every row that there can be."""
    golden("generate_run.txt", rendered(full_run(), FILES))


def test_an_interrupted_run(golden: Callable[[str, str], None]) -> None:
    """UNTRUSTED first, with the reason; no total is invented."""
    run = replace(
        three_stages(step_count=4),
        total_ns=None,
        incomplete_reason="KeyboardInterrupt, in DenoisingStage, step 3",
        warmup=Warmup(requests=0, steps_each=0, steady=None, reason="--no-warmup"),
    )
    golden("generate_interrupted.txt", rendered(run))


def test_stages_that_come_back_every_step_are_one_row_each() -> None:
    """A preview decoded in each of twelve steps: a row a name, its moves of weights summed too."""
    run, stages = full_run(), previews().runs[0].stages
    moves = tuple(replace(run.transfers[0], duration_ns=MS, stage_index=index) for index in (2, 4, 6))
    summary = replace(summarise(reconcile(run)), stages=stages)
    lines = render_run_summary(summary, replace(run, transfers=moves), NO_FILES).splitlines()
    rows = [line.split() for line in lines if line.startswith(("stage ", "DenoisingStage", "DecodingStage"))]
    assert rows[0][:3] == ["stage", "times", "ms"]
    assert [row[:5] for row in rows[1:]] == [
        ["DenoisingStage", "12", "616.5", "72.5", "%"],
        ["DecodingStage", "12", "186.6", "22.0", "%"],
    ]
    assert "3.00" in rows[2]


def test_time_between_known_calls_is_a_line_of_one_call_and_of_several() -> None:
    """What no known call covers is said of the call, and of the last of several."""
    run = full_run()
    plain = summarise(reconcile(run))
    stages = tuple(replace(stage, inferred_ms=stage.duration_ms) for stage in plain.stages)
    summary = replace(plain, stages=stages)
    said = "520.0 ms of DenoisingStage lie between known calls: the pipeline's own code or a callback"
    assert f"Between    {said}" in render_run_summary(summary, run, NO_FILES)
    assert "Between" not in render_run_summary(plain, run, NO_FILES)
    calls = [CallSeen(summary=one, run=run, files=NO_FILES) for one in (plain, summary)]
    assert f"Between: {said}" in render_calls_summary(calls, 2)
    assert "Between" not in render_calls_summary(calls[::-1], 2)


@pytest.mark.parametrize("pipeline", ["QwenImagePipeline", "StableDiffusionXLControlNetInpaintPipeline"])
@pytest.mark.parametrize("stage", ["DenoisingStage", "LTX2RefinementOfLatentsStage"])
@pytest.mark.parametrize("traced", [True, False])
def test_calls_with_steps_show_their_slowest_step_at_100_columns(pipeline, stage, traced) -> None:
    """Long names and marks of other columns do not hide a spike; without steps the column is not there."""
    run = full_run()
    run = replace(run, workload=replace(run.workload, pipeline_class=pipeline))
    run = run if traced else replace(run, traces=())
    summary = replace(summarise(reconcile(run)), dominant_stage=stage, total_ms=1_234_567.0)
    lines = render_calls_summary([CallSeen(summary=summary, run=run, files=NO_FILES)], 1).splitlines()
    head = next(line for line in lines if line.startswith("call "))
    assert "slowest" in head
    assert lines[lines.index(head) + 1][head.index("slowest") :].split()[0] == "2.00x"
    assert max(map(len, lines[: lines.index(head) + 3])) <= 100
    assert stage != "DenoisingStage" or "most time in" in head

    plain = replace(summary, steps=(), step_statistics=None)
    assert "slowest" not in render_calls_summary([CallSeen(summary=plain, run=run, files=NO_FILES)], 1)


def test_no_line_is_wider_than_the_terminal_but_paths_stay_whole() -> None:
    """Down to 60 columns; a script finds each path on one line."""
    for width in (60, 80, 100):
        text = rendered(full_run(), FILES, width)
        assert all(len(line) <= width for line in text.splitlines() if "/runs/" not in line)
    path = "/very" * 60
    long = replace(full_run(), traces=(replace(full_run().traces[0], path=path),))
    assert f"Saved profiler traces to: {path}\n" in rendered(long)


def test_control_characters_of_a_prompt_cannot_reach_the_terminal() -> None:
    """A file name or model name with an escape sequence is shown, not obeyed."""
    run = full_run()
    nasty = replace(run, workload=replace(run.workload, model="evil\x1b[2J"))
    assert "\x1b" not in rendered(nasty)


def test_what_a_terminal_cannot_encode_is_replaced() -> None:
    """An ASCII stream gets the same numbers and no exception."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    run = full_run()
    write_run_summary(summarise(reconcile(run)), run, FILES, stream)
    assert b"UNTRUSTED" in buffer.getvalue() or b"TRUSTED" in buffer.getvalue()


def test_times_that_were_not_warmed_up_say_so_on_the_first_lines() -> None:
    """Before any number, not under the table."""
    cold = replace(three_stages(), warmup=Warmup(requests=0, steps_each=0, steady=None, reason="--no-warmup"))
    lines = rendered(cold).splitlines()
    assert lines[1] == "NOT WARMED UP (--no-warmup): first-call costs may be in these times"
    assert not any(line.startswith("Warm-up") for line in lines)


def test_a_warm_up_slower_than_a_traced_step_was_none() -> None:
    """A profiler makes nothing faster: 'steady' with a step of twice the time is taken back."""
    warm = Warmup(requests=1, steps_each=2, steady=True, reason="nothing seen")
    assert warmup_sentence(warm, 1.16).endswith("a traced step took 1.16x the time of its last step")
    assert "its last step took 2.22x the time of a traced one" in warmup_sentence(warm, 0.45)


def test_where_weights_came_from_is_said() -> None:
    """Those in a local folder need not be the published ones."""
    run = full_run()
    hub, folder = (replace(run.workload, load_format="auto", weights=one) for one in ("", "folder"))
    assert "(published weights)" in rendered(replace(run, workload=hub))
    assert "(weights from folder)" in rendered(replace(run, workload=folder))


def test_several_runs_have_a_header_each_and_a_row_each() -> None:
    """Number, prompt (on one line, escaped and cut) and request id."""
    prompt = "a cat\n\x1b[31mon a mat " + "x" * 100
    run = replace(full_run(), workload=replace(full_run().workload, prompt=prompt))
    header = run_header(run, number=2, count=3)
    assert header.startswith("\nRun 2 of 3: 'a cat ")
    assert header.endswith(f"request {run.request_id}\n")
    assert "\x1b" not in header
    assert len(header) < 120
    stream = io.StringIO()
    write_runs_together([(summarise(reconcile(run)), run)] * 2, stream)
    rows = stream.getvalue().splitlines()
    assert rows[1].split()[:2] == ["run", "prompt"]
    assert [row.split()[0] for row in rows if row.strip().startswith(("1 ", "2 "))] == ["1", "2"]
