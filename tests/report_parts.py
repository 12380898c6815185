"""The image run and its trace that reports made by hand start from."""

from __future__ import annotations

from stepscope.analyse.results import (
    AnnotationRow,
    BusyPoint,
    CategoryRow,
    EngagedView,
    Finding,
    GpuSummary,
    IdleCause,
    KernelRow,
    MemoryPoint,
    OutsideTime,
    RankReport,
    RunSummary,
    Source,
    StageRow,
    StageTime,
    StepRow,
    StepStatistics,
    StepTime,
    TransferRow,
    Trust,
)

ATTENTION = Source(
    file="diffusers/models/transformers/transformer_qwenimage.py",
    line=312,
    line_exact=False,
    function="__call__",
)
MLP = Source(
    file="/opt/venv/lib/python3.12/site-packages/diffusers/models/attention.py",
    line=1249,
    line_exact=True,
    function="forward",
    module_path="transformer.transformer_blocks.0.img_mlp",
)
MULTIPLY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor"
    "<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> > >"
    "(at::TensorIteratorBase&, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1}>(int, at::native::"
    "gpu_kernel_impl_nocast<at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1})"
)
ADD = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::CUDAFunctor_add<c10::BFloat16> >(at::TensorIteratorBase&, "
    "at::native::CUDAFunctor_add<c10::BFloat16> const&)::"
    "{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<c10::BFloat16> >"
    "(at::TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)::{lambda(int)#1})"
)


def statistics_of(durations: list[float], *, uniform: bool, basis: str) -> StepStatistics:
    ordered = sorted(durations)
    median = ordered[len(ordered) // 2]
    slowest = durations.index(max(durations))
    return StepStatistics(
        count=len(durations),
        median_ms=median,
        minimum_ms=ordered[0],
        maximum_ms=ordered[-1],
        slowest=slowest,
        slowest_ratio=ordered[-1] / median,
        spread=(ordered[-1] - ordered[0]) / median,
        uniform=uniform,
        basis=basis,
    )


def stage_times(durations: dict[str, float], total_ms: float) -> tuple[StageTime, ...]:
    return tuple(
        StageTime(
            name=name,
            stage_index=index,
            duration_ms=duration,
            share=duration / total_ms,
            host_ms=duration * 0.4,
            inferred_ms=1.5 if name == "LatentPreparationStage" else 0.0,
        )
        for index, (name, duration) in enumerate(durations.items())
    )


def image_run() -> RunSummary:
    """A ten-step image run whose steps are alike."""
    durations = [350.2, 349.8, 350.1, 351.0, 349.9, 350.3, 350.0, 349.7, 350.4, 350.6]
    stages = {
        "InputValidationStage": 0.21,
        "TextEncodingStage": 38.4,
        "LatentPreparationStage": 1.9,
        "TimestepPreparationStage": 0.35,
        "DenoisingStage": 3_502.0,
        "DecodingStage": 72.3,
        "PostprocessingStage": 21.8,
    }
    return RunSummary(
        request_id="3f2a9c",
        path="runs/3f2a9c/perf.json",
        producer="stepscope",
        total_ms=3_641.4,
        trust=Trust(ok=True),
        stages=stage_times(stages, 3_641.4),
        steps=tuple(
            StepTime(index=index, stage_index=4, duration_ms=duration, host_ms=95.0, forwards=2)
            for index, duration in enumerate(durations)
        ),
        step_statistics=statistics_of(durations, uniform=True, basis="computed, untraced steps 0 to 9"),
        dominant_stage="DenoisingStage",
        outside=(
            OutsideTime(name="ModelLoading", duration_ms=18_240.0),
            OutsideTime(name="Warmup", duration_ms=4_102.0),
            OutsideTime(name="OutputSaving", duration_ms=61.0),
        ),
        unaccounted_ms=4.44,
        inferred_ms=1.5,
        coverage=0.998,
        profiler_pause_ms=0.0,
        environment=(
            ("device_kind", "cuda"),
            ("device_name", "NVIDIA H200"),
            ("torch", "2.11.0+cu130"),
            ("diffusers", "0.42.1"),
        ),
        workload=(
            ("model", "Qwen/Qwen-Image"),
            ("height", "1024"),
            ("width", "1024"),
            ("steps", "10"),
            ("dtype", "bfloat16"),
        ),
        engaged=(("attention", "flash"), ("compiled_modules", "0")),
        peak_memory_bytes=61_203_283_968,
    )


def image_rank() -> RankReport:
    """The trace of five of its steps."""
    gpu = GpuSummary(
        name="NVIDIA H200",
        device_count=1,
        kernel_count=55_337,
        span_ms=1_804.4,
        busy_ms=1_721.4,
        busy_ratio=0.954,
        compute_ms=1_719.0,
        communication_ms=0.0,
        exposed_communication_ms=0.0,
        copy_ms=2.4,
        exposed_copy_ms=1.9,
        idle_ms=83.0,
        idle_causes=(
            IdleCause(cause="host_late", total_ms=60.1, share=0.0333),
            IdleCause(cause="synchronising", total_ms=18.0, share=0.00998),
            IdleCause(cause="start_end", total_ms=4.9, share=0.0027),
        ),
        launch_count=55_337,
        launch_latency_median_us=412.7,
    )
    steps = tuple(
        StepRow(
            index=index,
            stage_index=0,
            duration_ms=duration,
            gpu_busy_ms=duration * 0.96,
            kernel_count=10_881,
            forwards=2,
            outlier=None,
            inferred=False,
            start_ms=1.0 + 350.6 * index,
        )
        for index, duration in enumerate((350.4, 350.9, 350.1, 350.6, 350.3))
    )
    return RankReport(
        rank=0,
        path="logs/3f2a9c-5_steps-global-rank0.trace.json.gz",
        request_id="3f2a9c",
        source="stepscope",
        event_count=486_881,
        gpu=gpu,
        stages=(
            StageRow(
                name="DenoisingStage",
                stage_index=4,
                start_ms=0.6,
                duration_ms=1_753.2,
                gpu_busy_ms=1_690.0,
                share=0.9716,
                kernel_count=54_405,
                bound_by="gpu",
                idle_ms=63.2,
                launch_count=54_405,
                tflop=693.0,
                tflop_per_s=410.1,
                peak_share=0.4147,
                peak_memory_bytes=61_203_283_968,
            ),
            StageRow(
                name="DecodingStage",
                stage_index=5,
                start_ms=1_756.0,
                duration_ms=47.9,
                gpu_busy_ms=31.4,
                share=0.0265,
                kernel_count=536,
                bound_by="host",
                idle_ms=16.5,
                launch_count=536,
            ),
        ),
        steps=steps,
        categories=(
            CategoryRow(name="gemm", total_ms=1_049.0, share=0.609, count=9_640),
            CategoryRow(name="attention", total_ms=361.5, share=0.21, count=600),
            CategoryRow(name="elementwise", total_ms=240.9, share=0.14, count=33_040),
            CategoryRow(name="normalisation", total_ms=51.6, share=0.03, count=2_420),
            CategoryRow(name="copy_layout", total_ms=17.2, share=0.01, count=9_100),
            CategoryRow(name="other", total_ms=0.4, share=0.0002, count=537),
        ),
        transfers=(
            TransferRow(
                kind="HtoD",
                pinned=False,
                count=12,
                bytes=3_145_728,
                total_ms=0.9,
                gb_per_s=3.5,
                exposed_ms=0.7,
                stage="DenoisingStage",
                source=MLP,
                operator="aten::copy_",
            ),
            TransferRow(
                kind="DtoH",
                pinned=None,
                count=1,
                bytes=6_291_456,
                total_ms=1.5,
                gb_per_s=4.2,
                exposed_ms=1.2,
                stage=None,
                source=None,
            ),
        ),
        kernels=(
            KernelRow(
                name="nvjet_sm90_tst_256x152_64x4_1x2_h_bz_coopA_bias_TNT",
                category="gemm",
                count=2_400,
                total_ms=610.2,
                share=0.3545,
                mean_us=254.25,
                source=MLP,
                grid=(132, 1, 1),
                block=(384, 1, 1),
                registers=168,
                shared_bytes=216_064,
                occupancy=0.1875,
                operator="aten::addmm",
                stages=("DenoisingStage",),
                ncu_command="ncu --kernel-name regex:nvjet_sm90_tst_256x152 --launch-skip 480 "
                "--launch-count 1 --set full -o kernel stepscope generate --model Qwen/Qwen-Image "
                "--num-inference-steps 2",
            ),
            KernelRow(
                name="cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_"
                "cga1x1x1_kernel0_0",
                category="attention",
                count=600,
                total_ms=361.5,
                share=0.21,
                mean_us=602.5,
                source=ATTENTION,
            ),
            KernelRow(
                name=MULTIPLY,
                category="elementwise",
                count=12_000,
                total_ms=120.4,
                share=0.0699,
                mean_us=10.03,
                source=ATTENTION,
            ),
            KernelRow(
                name=ADD,
                category="elementwise",
                count=9_000,
                total_ms=88.1,
                share=0.0512,
                mean_us=9.79,
                source=None,
                operator="aten::add",
            ),
        ),
        engaged=EngagedView(
            attention="cudnn", gemm_dtypes=("bfloat16",), compiled_kernel_share=0.0, graph_replays=0
        ),
        attributed_share=0.9831,
        outside_kernel_count=396,
        step_statistics=statistics_of(
            [step.duration_ms for step in steps], uniform=True, basis="all 5 traced steps"
        ),
        dominant_stage="DenoisingStage",
        annotations=(
            AnnotationRow(
                name="denoising_step_0", count=1, host_ms=96.1, kernel_count=10_881, gpu_busy_ms=336.4
            ),
            AnnotationRow(name="scheduler_step", count=5, host_ms=0.9, kernel_count=15, gpu_busy_ms=0.05),
        ),
        memory=tuple(
            MemoryPoint(at_ms=18.0 * at, allocated_bytes=56_000_000_000 + at % 7 * 500_000_000)
            for at in range(100)
        ),
        busy_over_time=tuple(
            BusyPoint(at_ms=18.0 * at, busy_ratio=0.5 if at > 97 else 0.97 - at % 5 * 0.01)
            for at in range(100)
        ),
        findings=(
            Finding(
                id="eager_elementwise",
                title="A seventh of the GPU time goes to elementwise kernels that a compiler would fuse",
                evidence="33,040 elementwise kernels take 240.9 ms of 1,721 ms busy time, 7.3 µs each.",
                cost_ms=180.0,
                source=ATTENTION,
                remedy="Compile repeated blocks: pipe.transformer.compile_repeated_blocks(fullgraph=True).",
            ),
            Finding(
                id="cfg_two_forwards",
                title="Guidance runs the denoiser twice a step",
                evidence="2 forwards in each of 5 steps.",
                cost_ms=None,
                source=None,
                remedy="Batch both passes, or skip guidance in late steps where quality allows.",
                severity="info",
            ),
        ),
    )
