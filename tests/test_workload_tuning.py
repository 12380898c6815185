"""What is done to a loaded pipeline: attention, compile, VAE memory, offload, LoRA, input images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stepscope.model.errors import UsageError
from stepscope.workload import tuning
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.load import load
from stepscope.workload.media import media_of
from stepscope.workload.request import (
    CompileKind,
    LoadRequest,
    Offload,
    OffloadKind,
)

CAT = GenerationRequest(prompt="a cat", steps=2, height=64, width=64)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """Nothing here may reach for the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def small(model="tiny/flux.1-schnell", **more):
    return load(LoadRequest(model=model, device="cpu", **more))


def test_what_was_applied_is_said():
    """Attention, compile and VAE memory, as text."""
    loaded = small(
        attention_backend="torch_sdpa", compile=CompileKind.REGIONAL, vae_tiling=True, vae_slicing=True
    )

    assert loaded.attention_backend == "native"
    assert loaded.compile == "regional"
    assert loaded.offload == "none"
    assert {"VAE tiling on", "VAE slicing on"} <= set(loaded.notes)
    assert loaded.pipeline.vae.use_tiling
    compiled = [m for m in loaded.pipeline.transformer.modules() if m._compiled_call_impl is not None]
    assert len(compiled) == 5


@pytest.mark.parametrize(("kind", "in_blocks"), [(OffloadKind.BLOCK, True), (OffloadKind.LEAF, False)])
@pytest.mark.parametrize("model", ["tiny/qwen-image", "tiny/stable-diffusion-xl", "tiny/wan2.1-t2v-1.3b"])
def test_groups_are_blocks_in_denoisers_and_leaves_where_forward_is_not_called(model, kind, in_blocks):
    """A VAE is entered by decode: whatever of it is no leaf group would stay on the host."""
    pipeline = small(model).pipeline
    cpu = torch.device("cpu")

    said = tuning._offload_groups(pipeline, Offload(kind=kind, pin=False), cpu)

    assert said == ("block x 1, pageable" if in_blocks else "leaf, pageable")
    denoiser = next(iter(tuning.denoisers(pipeline).values()))
    assert _grouped(denoiser, torch.nn.Linear) is not in_blocks
    assert _grouped(pipeline.vae, torch.nn.Conv2d, torch.nn.Conv3d)
    assert _grouped(pipeline.text_encoder, torch.nn.Linear)


def _grouped(module, *kinds):
    """Whether every layer of these kinds is a group of its own; half of them fails."""
    hooks = [
        any("group" in name for name in part._diffusers_hook.hooks)
        if hasattr(part, "_diffusers_hook")
        else False
        for part in module.modules()
        if isinstance(part, kinds)
    ]
    assert hooks
    assert all(hooks) or not any(hooks)
    return all(hooks)


def test_what_cannot_be_grouped_stays_on_the_device_and_is_named():
    """diffusers refuses group offloading for a few classes; that is no reason not to run."""
    pipeline = small("tiny/stable-diffusion-xl").pipeline
    pipeline.vae._supports_group_offloading = False

    said = tuning._offload_groups(pipeline, Offload(kind=OffloadKind.BLOCK, pin=False), torch.device("cpu"))

    assert said == "block x 1, pageable, vae on the device"


def test_a_lora_is_added_and_changes_the_picture(tmp_path):
    """Saved by peft, loaded by path, scaled."""
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    maker = small()
    maker.pipeline.transformer.add_adapter(
        LoraConfig(r=2, target_modules=["to_q"], init_lora_weights="gaussian")
    )
    state = get_peft_model_state_dict(maker.pipeline.transformer)
    state = {key: torch.ones_like(value) for key, value in state.items()}
    type(maker.pipeline).save_lora_weights(tmp_path, transformer_lora_layers=state)
    (tmp_path / "empty").mkdir()

    with_lora, without = small(lora_path=str(tmp_path), lora_scale=0.5), small()
    images = [p.pipeline(**call_arguments(p.pipeline, CAT)).images for p in (with_lora, without)]

    assert with_lora.lora == f"{tmp_path} x 0.5"
    assert not np.array_equal(*images)
    with pytest.raises(UsageError, match="cannot be applied"):
        small(lora_path=str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("tiny/flux.1-dev", "FluxImg2ImgPipeline"),
        ("tiny/qwen-image", "QwenImageImg2ImgPipeline"),
        ("tiny/ltx-video", "LTXImageToVideoPipeline"),
    ],
)
def test_an_image_selects_the_pipeline_that_takes_one(model, expected, tmp_path):
    """Image-to-image and image-to-video over the same components."""
    from PIL import Image

    Image.new("RGB", (80, 80), "red").save(tmp_path / "red.png")
    loaded = small(model, image_input=True)
    asked = GenerationRequest(prompt="a cat", steps=4, image_paths=(str(tmp_path / "red.png"),))
    (media,) = media_of(loaded.pipeline(**call_arguments(loaded.pipeline, asked, loaded.defaults)))

    assert type(loaded.pipeline).__name__ == expected
    assert media.data.shape[-3:] == (64, 64, 3)
    assert media.finite
