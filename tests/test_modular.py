"""Modular pipelines are observed as classic ones are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from observing import observe, stage_names
from stepscope.capture.blocks import block_kind
from stepscope.capture.components import methods_of_pipeline
from stepscope.model.recording import CallKind
from stepscope.workload.load import load
from stepscope.workload.request import LoadFormat, LoadRequest


@pytest.fixture(scope="module")
def modular() -> Any:
    from diffusers.modular_pipelines import QwenImageAutoBlocks

    classic = load(LoadRequest(model="tiny/qwen-image", load_format=LoadFormat.DUMMY, device="cpu"))
    pipeline = QwenImageAutoBlocks().init_pipeline()
    pipeline.update_components(**classic.pipeline.components)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def test_a_modular_pipeline_has_its_stages_and_steps(modular: Any) -> None:
    """Blocks are known calls: the preparation of latents is seen, and the picture is the same."""

    def call() -> Any:
        generator = torch.Generator().manual_seed(0)
        return modular(
            prompt="a cat", height=64, width=64, num_inference_steps=3, output="images", generator=generator
        )

    expected = np.asarray(call()[0])
    observed = observe(modular, call)

    assert observed.error is None
    assert np.array_equal(np.asarray(observed.result[0]), expected)
    assert len(observed.run.steps) == 3
    names = list(dict.fromkeys(stage_names(observed.run)))
    assert {"TextEncodingStage", "LatentPreparationStage", "TimestepPreparationStage"} <= set(names)
    assert names.index("DenoisingStage") < names.index("DecodingStage") < names.index("PostprocessingStage")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("QwenImageTextEncoderStep", CallKind.TEXT_ENCODING),
        ("WanImageEncoderStep", CallKind.IMAGE_ENCODING),
        ("FluxVaeEncoderStep", CallKind.VAE_ENCODING),
        ("QwenImageSetTimestepsWithStrengthStep", CallKind.TIMESTEPS),
        ("FluxPrepareLatentsStep", CallKind.LATENTS),
        ("StableDiffusionXLInputStep", CallKind.LATENTS),
        ("QwenImageDecoderStep", CallKind.DECODING),
        ("FluxDecodeStep", CallKind.DECODING),
        ("QwenImageAfterDenoiseStep", CallKind.DECODING),
        ("QwenImageProcessImagesOutputStep", CallKind.POSTPROCESSING),
        ("FluxDenoiseStep", None),
        ("QwenImageInpaintBeforeDenoiseStep", None),
    ],
)
def test_blocks_are_told_by_their_class_names(name: str, kind: CallKind | None) -> None:
    """What a block does is in the name of its class; one that tells nothing is left to the calls in it."""
    assert block_kind(name) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("encode_prompt", CallKind.TEXT_ENCODING),
        ("_encode_prior_prompt", CallKind.TEXT_ENCODING),
        ("_encode_image_prompt", CallKind.IMAGE_ENCODING),
        ("prepare_latents", CallKind.LATENTS),
        ("prepare_cond_latents_and_mask", CallKind.LATENTS),
        ("prepare_image_with_mask", CallKind.LATENTS),
        ("prepare_mask_latents", CallKind.VAE_ENCODING),
        ("_prepare_first_frame_conditioning", CallKind.VAE_ENCODING),
        ("_prepare_attention_mask", CallKind.HOUSEKEEPING),
        ("_apply_perturbed_attention_guidance", CallKind.HOUSEKEEPING),
        ("decode_latents_with_padding", CallKind.DECODING),
        ("mel_spectrogram_to_waveform", CallKind.DECODING),
        ("ensemble_depth", CallKind.POSTPROCESSING),
        ("get_timesteps", CallKind.TIMESTEPS),
        ("_get_timestep_schedule", CallKind.TIMESTEPS),
        ("forward_loop", None),  # it holds denoiser forwards
        ("denoise", None),
        ("prepare_unet", None),
    ],
)
def test_methods_of_pipelines_are_told_by_their_names(name: str, kind: CallKind | None) -> None:
    """diffusers' conventions; a method that runs a whole loop stays unknown: it would hide much."""
    pipeline_class = type("Pipeline", (), {name: lambda self: None})

    known = methods_of_pipeline(pipeline_class(), "pipeline").get(name)

    assert (known.kind if known else None) is kind
