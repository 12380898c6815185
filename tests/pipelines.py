"""Tiny pipelines of real diffusers classes with seeded random weights, built without a download."""

from __future__ import annotations

import types
from typing import Any

import torch


def tokenizer(length: int = 16) -> Any:
    """A CLIP tokenizer that knows letters only."""
    import json
    import tempfile
    from pathlib import Path

    from transformers import CLIPTokenizer

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, merges = Path(folder, "vocab.json"), Path(folder, "merges.txt")
        vocabulary.write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
        merges.write_text("#version: 0.2\n")
        return CLIPTokenizer(str(vocabulary), str(merges), model_max_length=length)


def text_encoder() -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(0)
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=16,
            bos_token_id=52,
            eos_token_id=53,
            pad_token_id=53,
        )
    ).eval()


def autoencoder(channels: int = 4) -> Any:
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    return AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=channels,
        norm_num_groups=4,
        sample_size=16,
        shift_factor=0.0,
        scaling_factor=1.0,
    ).eval()


def unet() -> Any:
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    return UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=16,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=2,
        norm_num_groups=4,
    ).eval()


def stable_diffusion(scheduler: Any = None) -> Any:
    """StableDiffusionPipeline: UNet, doubled batch for guidance."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    pipeline = StableDiffusionPipeline(
        vae=autoencoder(),
        text_encoder=text_encoder(),
        tokenizer=tokenizer(),
        unet=unet(),
        scheduler=scheduler or DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def stable_diffusion_image_to_image() -> Any:
    from diffusers import StableDiffusionImg2ImgPipeline

    pipeline = StableDiffusionImg2ImgPipeline(**stable_diffusion().components, requires_safety_checker=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def controlled(count: int) -> Any:
    """StableDiffusionControlNetPipeline with as many ControlNets as said."""
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    parts = stable_diffusion().components
    nets = [
        ControlNetModel.from_unet(parts["unet"], conditioning_embedding_out_channels=(8, 8)).eval()
        for _ in range(count)
    ]
    pipeline = StableDiffusionControlNetPipeline(
        **parts, controlnet=nets if count > 1 else nets[0], requires_safety_checker=False
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def sd(pipeline: Any, steps: int = 3, **more: Any) -> Any:
    """Call a tiny StableDiffusion pipeline with a seed; returns the picture as an array."""
    generator = torch.Generator().manual_seed(0)
    arguments = {"height": 32, "width": 32, "output_type": "np", "generator": generator, **more}
    return pipeline("a cat", num_inference_steps=steps, **arguments).images


def failing(step: int) -> Any:
    """A ``callback_on_step_end`` that raises ValueError("half-way") after that step."""

    def callback(_pipeline: Any, index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        if index == step:
            raise ValueError("half-way")
        return {}

    return callback


def flux() -> Any:
    """FluxPipeline, two text encoders."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
    ).eval()
    t5 = T5EncoderModel(
        T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    ).eval()
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        text_encoder=text_encoder(),
        text_encoder_2=t5,
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer(),
        transformer=transformer,
        vae=autoencoder(1),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def flux_call(pipeline: Any, steps: int = 2, **more: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    return pipeline(
        "a cat",
        height=8,
        width=8,
        num_inference_steps=steps,
        generator=generator,
        max_sequence_length=16,
        output_type="np",
        **more,
    ).images


def scheduler(name: str) -> Any:
    """A diffusers scheduler by class name, with Stable Diffusion's betas."""
    import diffusers

    settings = {"skip_prk_steps": True} if name == "PNDMScheduler" else {}
    return getattr(diffusers, name)(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1, **settings
    )


class ToyScheduler:
    """The scheduler interface without diffusers, for pipelines that are not diffusers'."""

    order = 1

    def set_timesteps(self, steps: int) -> None:
        self.timesteps = list(range(steps))

    def step(self, noise: Any, sample: Any, generator: Any = None) -> Any:
        return sample - 0.1 * noise


class ToyDenoiser(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, sample: Any, timestep: int) -> Any:
        return self.linear(sample)


class ToyDecoder(torch.nn.Module):
    def encode(self, sample: Any) -> Any:
        return sample

    def decode(self, sample: Any) -> Any:
        return sample * 2


class ToyPipeline:
    """No diffusers pipeline, but it has the parts of one and is called as one."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.scheduler = ToyScheduler()
        self.transformer = ToyDenoiser()
        self.vae = ToyDecoder()

    def __call__(self, steps: int = 3) -> Any:
        sample = torch.ones(1, 4)
        with torch.no_grad():
            for step in range(steps):
                sample = self.scheduler.step(self.transformer(sample, step), sample)
            return self.vae.decode(sample)


def toy(**parts: Any) -> Any:
    """Any object with parts as attributes is a pipeline to the observer."""
    defaults = {"scheduler": ToyScheduler(), "transformer": ToyDenoiser(), "vae": ToyDecoder()}
    return types.SimpleNamespace(**{**defaults, **parts})
