"""Stable Diffusion 3.5 Large. Figures: ``config.json`` of each component of its repository on the hub."""

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

_TRANSFORMER = ComponentSpec(
    library="diffusers",
    class_name="SD3Transformer2DModel",
    config={
        "sample_size": 128,
        "patch_size": 2,
        "in_channels": 16,
        "out_channels": 16,
        "num_layers": 38,
        "attention_head_dim": 64,
        "num_attention_heads": 38,
        "joint_attention_dim": 4096,
        "caption_projection_dim": 2432,
        "pooled_projection_dim": 2048,
        "pos_embed_max_size": 192,
        "dual_attention_layers": (),  # only 3.5 Medium has them
        "qk_norm": "rms_norm",
    },
    depth_keys=("num_layers",),
)

SD_3_5_LARGE = Preset(
    id="stabilityai/stable-diffusion-3.5-large",
    pipeline_class="StableDiffusion3Pipeline",
    components={
        "transformer": _TRANSFORMER,
        "vae": autoencoders.STABLE_DIFFUSION_3,
        "text_encoder": text_encoders.CLIP_L_PROJECTED,
        "text_encoder_2": text_encoders.OPENCLIP_BIG_G,
        "text_encoder_3": text_encoders.T5_XXL,
    },
    tokenizers={
        "tokenizer": tokenizers.CLIP_L,
        "tokenizer_2": tokenizers.OPENCLIP_BIG_G,
        "tokenizer_3": tokenizers.T5,
    },
    scheduler=SchedulerSpec(
        class_name="FlowMatchEulerDiscreteScheduler", config={"num_train_timesteps": 1000, "shift": 3.0}
    ),
    # Model card: 28 steps, guidance 3.5.
    defaults=GenerationDefaults(steps=28, guidance_scale=3.5, height=1024, width=1024),
    published=(
        PublishedCount(
            component="transformer",
            parameters=8.1e9,
            tolerance=0.01,
            source="stability.ai/news/introducing-stable-diffusion-3-5: 8.1 billion parameters",
        ),
        PublishedCount(
            component="text_encoder_3",
            parameters=4.7e9,
            tolerance=0.02,
            source="arXiv 2403.03206: T5-XXL, 4.7B",
        ),
        PublishedCount(
            component="text_encoder+text_encoder_2",
            parameters=817e6,
            tolerance=0.01,
            source="arXiv 2307.01952, table 1: CLIP ViT-L and OpenCLIP ViT-bigG, 817M",
        ),
    ),
)
TINY_SD_3_5_LARGE = replace(
    SD_3_5_LARGE,
    id="tiny/stable-diffusion-3.5-large",
    components={
        "transformer": _TRANSFORMER.with_config(
            sample_size=8,
            num_layers=4,
            attention_head_dim=32,
            num_attention_heads=4,
            joint_attention_dim=64,
            caption_projection_dim=128,
            pooled_projection_dim=64,
            pos_embed_max_size=24,
        ),
        "vae": autoencoders.tiny(autoencoders.STABLE_DIFFUSION_3),
        "text_encoder": text_encoders.TINY_CLIP_PROJECTED,
        "text_encoder_2": text_encoders.TINY_CLIP_PROJECTED,
        "text_encoder_3": text_encoders.TINY_T5_WIDE,  # as wide as both CLIPs together, or wider
    },
    tokenizers={name: tokenizers.shrunk(spec) for name, spec in SD_3_5_LARGE.tokenizers.items()},
    defaults=GenerationDefaults(steps=12, guidance_scale=3.5, height=64, width=64),
    published=(),
)

PRESETS = (SD_3_5_LARGE, TINY_SD_3_5_LARGE)
