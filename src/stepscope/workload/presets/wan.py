"""Wan 2.1 text-to-video.

Figures: the configurations in Wan's repository (``wan/configs/wan_t2v_1_3B.py``, ``wan_t2v_14B.py``) in the
names of diffusers' ``scripts/convert_wan_to_diffusers.py``, which made the published -Diffusers repositories.
"""

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

_TRANSFORMER_14B = ComponentSpec(
    library="diffusers",
    class_name="WanTransformer3DModel",
    config={
        "patch_size": (1, 2, 2),
        "num_attention_heads": 40,
        "attention_head_dim": 128,
        "in_channels": 16,
        "out_channels": 16,
        "text_dim": 4096,
        "freq_dim": 256,
        "ffn_dim": 13824,
        "num_layers": 40,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "eps": 1e-6,
        "rope_max_seq_len": 1024,
    },
    depth_keys=("num_layers",),
)
_COUNTS = (
    PublishedCount(
        component="vae",
        parameters=127e6,
        tolerance=0.005,
        source="arXiv 2503.20314: Wan-VAE, 127M parameters",
    ),
    PublishedCount(
        component="text_encoder",
        parameters=5.68e9,
        tolerance=0.005,
        source="models_t5_umt5-xxl-enc-bf16.pth: 11.36 GB in bfloat16",
    ),
)

WAN_14B = Preset(
    id="Wan-AI/Wan2.1-T2V-14B-Diffusers",
    pipeline_class="WanPipeline",
    components={
        "transformer": _TRANSFORMER_14B,
        "vae": autoencoders.WAN,
        "text_encoder": text_encoders.UMT5_XXL,
    },
    tokenizers={"tokenizer": tokenizers.UMT5},
    scheduler=SchedulerSpec(
        class_name="UniPCMultistepScheduler",
        config={
            "prediction_type": "flow_prediction",
            "use_flow_sigmas": True,
            "num_train_timesteps": 1000,
            "flow_shift": 3.0,
        },
    ),
    # Model card and Wan's generate.py: 50 steps, guidance 5.0, 81 frames at 16 fps, 720p for 14B.
    defaults=GenerationDefaults(steps=50, guidance_scale=5.0, height=720, width=1280, frames=81, fps=16),
    precision={"vae": "float32"},  # model card: AutoencoderKLWan is loaded in float32
    published=(
        PublishedCount(
            component="transformer", parameters=14e9, tolerance=0.025, source="arXiv 2503.20314: 14B"
        ),
        *_COUNTS,
    ),
)
WAN_1_3B = replace(
    WAN_14B,
    id="Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    components={
        **WAN_14B.components,
        "transformer": _TRANSFORMER_14B.with_config(
            num_attention_heads=12,
            ffn_dim=8960,
            num_layers=30,
        ),
    },
    # Model card: 480p.
    defaults=GenerationDefaults(steps=50, guidance_scale=5.0, height=480, width=832, frames=81, fps=16),
    published=(
        PublishedCount(
            component="transformer",
            parameters=5_676_070_424 / 4,
            tolerance=0.001,
            source="Wan-AI/Wan2.1-T2V-1.3B (so called), diffusion_pytorch_model.safetensors: "
            "5,676,070,424 bytes of float32",
        ),
        *_COUNTS,
    ),
)

_TINY_TRANSFORMER = _TRANSFORMER_14B.with_config(
    num_attention_heads=4,
    attention_head_dim=32,
    text_dim=32,
    freq_dim=64,
    ffn_dim=256,
    num_layers=3,
)
TINY_WAN_14B = replace(
    WAN_14B,
    id="tiny/wan2.1-t2v-14b",
    components={
        "transformer": _TINY_TRANSFORMER,
        "vae": autoencoders.WAN.with_config(base_dim=8, num_res_blocks=1),
        "text_encoder": text_encoders.TINY_UMT5,
    },
    tokenizers={"tokenizer": tokenizers.shrunk(tokenizers.UMT5)},
    defaults=GenerationDefaults(steps=12, guidance_scale=5.0, height=64, width=64, frames=5, fps=16),
    published=(),
)
TINY_WAN_1_3B = replace(
    TINY_WAN_14B,
    id="tiny/wan2.1-t2v-1.3b",
    components={
        **TINY_WAN_14B.components,
        "transformer": _TINY_TRANSFORMER.with_config(num_layers=2),
    },
)

PRESETS = (WAN_1_3B, WAN_14B, TINY_WAN_1_3B, TINY_WAN_14B)
