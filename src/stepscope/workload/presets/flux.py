"""FLUX.1. Figures: ``config.json`` of each component of black-forest-labs/FLUX.1-dev and FLUX.1-schnell."""

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
    class_name="FluxTransformer2DModel",
    config={
        "patch_size": 1,
        "in_channels": 64,
        "num_layers": 19,
        "num_single_layers": 38,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "guidance_embeds": True,
        "axes_dims_rope": (16, 56, 56),
    },
    depth_keys=("num_layers", "num_single_layers"),
)
_SCHEDULER = SchedulerSpec(
    class_name="FlowMatchEulerDiscreteScheduler",
    config={
        "num_train_timesteps": 1000,
        "shift": 3.0,
        "use_dynamic_shifting": True,
        "base_shift": 0.5,
        "max_shift": 1.15,
        "base_image_seq_len": 256,
        "max_image_seq_len": 4096,
    },
)

FLUX_DEV = Preset(
    id="black-forest-labs/FLUX.1-dev",
    pipeline_class="FluxPipeline",
    components={
        "transformer": _TRANSFORMER,
        "vae": autoencoders.FLUX,
        "text_encoder": text_encoders.CLIP_L,
        "text_encoder_2": text_encoders.T5_XXL,
    },
    tokenizers={"tokenizer": tokenizers.CLIP_L, "tokenizer_2": tokenizers.T5},
    scheduler=_SCHEDULER,
    # Model card: 50 steps, guidance 3.5, 1024x1024.
    defaults=GenerationDefaults(steps=50, guidance_scale=3.5, height=1024, width=1024),
    published=(
        PublishedCount(
            component="transformer",
            parameters=12e9,
            tolerance=0.02,
            source="model card: 12 billion parameters",
        ),
    ),
)
FLUX_SCHNELL = replace(
    FLUX_DEV,
    id="black-forest-labs/FLUX.1-schnell",
    components={
        **FLUX_DEV.components,
        "transformer": _TRANSFORMER.with_config(guidance_embeds=False),
    },
    tokenizers={
        "tokenizer": tokenizers.CLIP_L,
        "tokenizer_2": tokenizers.T5,
    },
    scheduler=replace(_SCHEDULER, config={**_SCHEDULER.config, "shift": 1.0, "use_dynamic_shifting": False}),
    # Model card: 4 steps, guidance 0.0.
    defaults=GenerationDefaults(steps=4, guidance_scale=0.0, height=1024, width=1024),
)

_TINY_TRANSFORMER = _TRANSFORMER.with_config(
    num_layers=2,
    num_single_layers=3,
    attention_head_dim=32,
    num_attention_heads=4,
    joint_attention_dim=32,
    pooled_projection_dim=32,
    axes_dims_rope=(8, 12, 12),
)
TINY_FLUX_DEV = replace(
    FLUX_DEV,
    id="tiny/flux.1-dev",
    components={
        "transformer": _TINY_TRANSFORMER,
        "vae": autoencoders.tiny(autoencoders.FLUX),
        "text_encoder": text_encoders.TINY_CLIP,
        "text_encoder_2": text_encoders.TINY_T5,
    },
    tokenizers={
        "tokenizer": tokenizers.shrunk(tokenizers.CLIP_L),
        "tokenizer_2": tokenizers.shrunk(tokenizers.T5),
    },
    defaults=GenerationDefaults(steps=12, guidance_scale=3.5, height=64, width=64),
    published=(),
)
TINY_FLUX_SCHNELL = replace(
    TINY_FLUX_DEV,
    id="tiny/flux.1-schnell",
    components={
        **TINY_FLUX_DEV.components,
        "transformer": _TINY_TRANSFORMER.with_config(guidance_embeds=False),
    },
    scheduler=FLUX_SCHNELL.scheduler,
    defaults=GenerationDefaults(steps=4, guidance_scale=0.0, height=64, width=64),
)

PRESETS = (FLUX_DEV, FLUX_SCHNELL, TINY_FLUX_DEV, TINY_FLUX_SCHNELL)
