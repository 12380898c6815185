"""Stable Diffusion XL base 1.0. Figures: ``config.json`` of each component of its repository on the hub."""

from __future__ import annotations

from dataclasses import replace

from stepscope.workload.presets import autoencoders, text_encoders, tokenizers
from stepscope.workload.presets.spec import (
    ComponentSpec,
    GenerationDefaults,
    Preset,
    PublishedCount,
    SchedulerSpec,
)

_UNET = ComponentSpec(
    library="diffusers",
    class_name="UNet2DConditionModel",
    config={
        "sample_size": 128,
        "in_channels": 4,
        "out_channels": 4,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "block_out_channels": [320, 640, 1280],
        "layers_per_block": 2,
        "cross_attention_dim": 2048,
        "transformer_layers_per_block": [1, 2, 10],
        "attention_head_dim": [5, 10, 20],  # in truth the number of heads; diffusers' old name
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,  # 6 x 256 + 1280
    },
    depth_keys=("transformer_layers_per_block",),
)

SDXL = Preset(
    id="stabilityai/stable-diffusion-xl-base-1.0",
    pipeline_class="StableDiffusionXLPipeline",
    components={
        "unet": _UNET,
        "vae": autoencoders.STABLE_DIFFUSION_XL,
        "text_encoder": text_encoders.CLIP_L,
        "text_encoder_2": text_encoders.OPENCLIP_BIG_G,
    },
    tokenizers={"tokenizer": tokenizers.CLIP_L, "tokenizer_2": tokenizers.OPENCLIP_BIG_G},
    scheduler=SchedulerSpec(
        class_name="EulerDiscreteScheduler",
        config={
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "interpolation_type": "linear",
            "num_train_timesteps": 1000,
            "prediction_type": "epsilon",
            "steps_offset": 1,
            "timestep_spacing": "leading",
            "use_karras_sigmas": False,
        },
    ),
    # diffusers' own defaults: 50 steps, guidance 5.0.
    defaults=GenerationDefaults(steps=50, guidance_scale=5.0, height=1024, width=1024),
    options={"force_zeros_for_empty_prompt": True},
    published=(
        PublishedCount(
            component="unet", parameters=2.6e9, tolerance=0.02, source="arXiv 2307.01952, table 1: 2.6B"
        ),
        PublishedCount(
            component="text_encoder+text_encoder_2",
            parameters=817e6,
            tolerance=0.01,
            source="arXiv 2307.01952, table 1: 817M",
        ),
        PublishedCount(
            component="vae",
            parameters=83.7e6,
            tolerance=0.005,
            source="vae/diffusion_pytorch_model.safetensors: 335 MB in float32",
        ),
    ),
)
TINY_SDXL = replace(
    SDXL,
    id="tiny/stable-diffusion-xl",
    components={
        "unet": _UNET.with_config(
            sample_size=8,
            block_out_channels=[32, 64, 64],
            cross_attention_dim=64,
            transformer_layers_per_block=[1, 1, 2],
            attention_head_dim=[2, 4, 4],
            norm_num_groups=8,
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=80,  # 6 x 8 + 32
        ),
        "vae": autoencoders.tiny(autoencoders.STABLE_DIFFUSION_XL),
        "text_encoder": text_encoders.TINY_CLIP,
        "text_encoder_2": text_encoders.TINY_CLIP_PROJECTED,
    },
    tokenizers={name: tokenizers.shrunk(spec) for name, spec in SDXL.tokenizers.items()},
    defaults=GenerationDefaults(steps=12, guidance_scale=5.0, height=64, width=64),
    published=(),
)

PRESETS = (SDXL, TINY_SDXL)
