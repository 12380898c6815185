"""What names say about stages and steps."""

import pytest

from stepscope.analyse.trace.marks import MarkKind, annotation_mark, frame_mark


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("DenoisingStage", MarkKind.STAGE, "DenoisingStage"),
        ("STAGE denoising_stage", MarkKind.STAGE, "DenoisingStage"),
        ("STAGE TextEncodingStage", MarkKind.STAGE, "TextEncodingStage"),
        ("stage_DecodingStage", MarkKind.STAGE, "DecodingStage"),
        ("denoising_loop", MarkKind.STAGE, "DenoisingStage"),
        ("vae_decode", MarkKind.STAGE, "DecodingStage"),
        ("encode_prompt", MarkKind.STAGE, "TextEncodingStage"),
        ("diffusion_step", MarkKind.STEP, None),
        ("denoising_step_12", MarkKind.STEP, 12),
        ("denoising_step_3_t0.5", MarkKind.STEP, 3),
        ("ProfilerStep#4", MarkKind.PROFILER_STEP, 4),
        ("scheduler_step", MarkKind.SCHEDULER, None),
        ("transformer_forward", MarkKind.FORWARD, None),
        ("forward_transformer_2", MarkKind.FORWARD, "transformer_2"),
        ("pipeline_forward", MarkKind.PIPELINE, None),
    ],
)
def test_annotation_names_of_every_engine_are_understood(name: str, kind: MarkKind, said: object) -> None:
    """SGLang, vLLM-Omni, diffusers' profiling example, torch.profiler and our own."""
    mark = annotation_mark(name)

    assert mark is not None
    assert mark.kind is kind
    assert said in (mark.index, mark.name, None)


@pytest.mark.parametrize(
    "name", ["nccl:all_to_all", "aten::add", "## Call CompiledFxGraph x ##", "", "Stage"]
)
def test_other_annotations_say_nothing(name: str) -> None:
    """An annotation is a stage only by the rules, never by likeness."""
    mark = annotation_mark(name)

    assert mark is None or mark.name == "Stage"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("diffusers/pipelines/wan/pipeline_wan.py(150): encode_prompt", "TextEncodingStage"),
        ("diffusers/models/autoencoders/autoencoder_kl.py(300): decode", "DecodingStage"),
        ("diffusers/image_processor.py(738): postprocess", "PostprocessingStage"),
        (
            "sglang/multimodal_gen/runtime/pipelines_core/stages/text_encoding.py(336): forward",
            "TextEncodingStage",
        ),
        (
            "sglang/runtime/pipelines_core/stages/progressive_resolution/denoising.py(9): forward",
            "DenoisingStage",
        ),
    ],
)
def test_frames_of_pipelines_say_the_stage(name: str, expected: str) -> None:
    """Functions are told by their name and file, not by the pipeline."""
    mark = frame_mark(name)

    assert mark is not None
    assert mark.name == expected


def test_a_schedulers_step_is_known_by_its_file() -> None:
    """Not every function called step: the profiler has one too."""
    scheduler = frame_mark("diffusers/schedulers/scheduling_unipc_multistep.py(1000): step")

    assert scheduler is not None
    assert scheduler.kind is MarkKind.SCHEDULER
    assert frame_mark("vllm/profiler/wrapper.py(99): step") is None
    assert frame_mark("<built-in method step>") is None
