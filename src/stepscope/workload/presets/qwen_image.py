"""Qwen-Image. Figures: ``config.json`` of each component of Qwen/Qwen-Image on its hub."""

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

QWEN_IMAGE = Preset(
    id="Qwen/Qwen-Image",
    pipeline_class="QwenImagePipeline",
    components={
        "transformer": ComponentSpec(
            library="diffusers",
            class_name="QwenImageTransformer2DModel",
            config={
                "patch_size": 2,
                "in_channels": 64,
                "out_channels": 16,
                "num_layers": 60,
                "attention_head_dim": 128,
                "num_attention_heads": 24,
                "joint_attention_dim": 3584,
                "guidance_embeds": False,
                "axes_dims_rope": (16, 56, 56),
            },
            depth_keys=("num_layers",),
        ),
        "vae": autoencoders.QWEN_IMAGE,
        "text_encoder": text_encoders.QWEN2_5_VL_7B,
    },
    tokenizers={"tokenizer": tokenizers.QWEN},
    scheduler=SchedulerSpec(
        class_name="FlowMatchEulerDiscreteScheduler",
        config={
            "base_image_seq_len": 256,
            "base_shift": 0.5,
            "invert_sigmas": False,
            "max_image_seq_len": 8192,
            "max_shift": 0.9,
            "num_train_timesteps": 1000,
            "shift": 1.0,
            "shift_terminal": 0.02,
            "time_shift_type": "exponential",
            "use_dynamic_shifting": True,
        },
    ),
    # Model card: 50 steps, true CFG 4.0; 1328x1328 for 1:1. 1024x1024 is what SGLang and this issue measure.
    defaults=GenerationDefaults(steps=50, guidance_scale=4.0, height=1024, width=1024),
    published=(
        PublishedCount(
            component="transformer", parameters=20e9, tolerance=0.03, source="arXiv 2508.02324: a 20B MMDiT"
        ),
        PublishedCount(
            component="text_encoder",
            parameters=8.29e9,
            tolerance=0.005,
            source="Qwen/Qwen2.5-VL-7B-Instruct model page: 8.29B parameters",
        ),
    ),
)

TINY_QWEN_IMAGE = replace(
    QWEN_IMAGE,
    id="tiny/qwen-image",
    components={
        "transformer": replace(
            QWEN_IMAGE.components["transformer"],
            config={
                "patch_size": 2,
                "in_channels": 64,
                "out_channels": 16,
                "num_layers": 4,
                "attention_head_dim": 64,
                "num_attention_heads": 4,
                "joint_attention_dim": 32,
                "guidance_embeds": False,
                "axes_dims_rope": (16, 24, 24),
            },
        ),
        "vae": autoencoders.QWEN_IMAGE.with_config(base_dim=24, num_res_blocks=1),
        "text_encoder": text_encoders.TINY_QWEN2_5_VL,
    },
    tokenizers={"tokenizer": tokenizers.shrunk(tokenizers.QWEN)},
    defaults=GenerationDefaults(steps=12, guidance_scale=4.0, height=64, width=64),
    published=(),
)

PRESETS = (QWEN_IMAGE, TINY_QWEN_IMAGE)
