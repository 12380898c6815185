"""Modular pipelines are observed as classic ones are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stepscope.capture.blocks import block_kind
from stepscope.model.recording import CallKind
from stepscope.workload.load import load
from stepscope.workload.request import LoadFormat, LoadRequest
from test_observe import observe, stage_names


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
