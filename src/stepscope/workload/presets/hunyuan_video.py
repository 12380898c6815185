"""HunyuanVideo text-to-video.

Figures: diffusers' ``scripts/convert_hunyuan_video_to_diffusers.py``, which made the published repository
from the classes' own defaults.
"""

from __future__ import annotations

from dataclasses import replace

from stepscope.workload.presets import text_encoders, tokenizers
from stepscope.workload.presets.spec import (
    ComponentSpec,
    GenerationDefaults,
    Preset,
    PublishedCount,
    SchedulerSpec,
)

_TRANSFORMER = ComponentSpec(
    library="diffusers",
    class_name="HunyuanVideoTransformer3DModel",
    config={
        "in_channels": 16,
        "out_channels": 16,
        "num_attention_heads": 24,
        "attention_head_dim": 128,
        "num_layers": 20,
        "num_single_layers": 40,
        "num_refiner_layers": 2,
        "mlp_ratio": 4.0,
        "patch_size": 2,
        "patch_size_t": 1,
        "qk_norm": "rms_norm",
        "guidance_embeds": True,
        "text_embed_dim": 4096,
        "pooled_projection_dim": 768,
        "rope_theta": 256.0,
        "rope_axes_dim": (16, 56, 56),
    },
    depth_keys=("num_layers", "num_single_layers", "num_refiner_layers"),
)
_VAE = ComponentSpec(
    library="diffusers",
    class_name="AutoencoderKLHunyuanVideo",
    config={
        "in_channels": 3,
        "out_channels": 3,
        "latent_channels": 16,
        "block_out_channels": [128, 256, 512, 512],
        "layers_per_block": 2,
        "norm_num_groups": 32,
        "scaling_factor": 0.476986,
        "spatial_compression_ratio": 8,
        "temporal_compression_ratio": 4,
        "mid_block_add_attention": True,
    },
)

HUNYUAN_VIDEO = Preset(
    id="hunyuanvideo-community/HunyuanVideo",
    pipeline_class="HunyuanVideoPipeline",
    components={
        "transformer": _TRANSFORMER,
        "vae": _VAE,
        "text_encoder": text_encoders.LLAVA_LLAMA_3_8B,
        "text_encoder_2": text_encoders.CLIP_L,
    },
    tokenizers={"tokenizer": tokenizers.LLAMA_3, "tokenizer_2": tokenizers.CLIP_L},
    scheduler=SchedulerSpec(class_name="FlowMatchEulerDiscreteScheduler", config={"shift": 7.0}),
    # Tencent/HunyuanVideo's README: 50 steps, embedded guidance 6.0, 129 frames of 720x1280 at 24 fps.
    defaults=GenerationDefaults(steps=50, guidance_scale=6.0, height=720, width=1280, frames=129, fps=24),
    published=(
        PublishedCount(
            component="transformer",
            parameters=13e9,
            tolerance=0.02,
            source="arXiv 2412.03603: over 13 billion",
        ),
        PublishedCount(
            component="text_encoder",
            parameters=8.03e9 - 128_256 * 4096,
            tolerance=0.005,
            source="meta-llama/Meta-Llama-3-8B model page: 8.03B, less its output layer",
        ),
        PublishedCount(
            component="vae",
            parameters=246.5e6,
            tolerance=0.005,
            source="hunyuan-video-t2v-720p/vae/pytorch_model.pt: 986 MB in float32",
        ),
    ),
)
TINY_HUNYUAN_VIDEO = replace(
    HUNYUAN_VIDEO,
    id="tiny/hunyuanvideo",
    components={
        "transformer": _TRANSFORMER.with_config(
            num_attention_heads=4,
            attention_head_dim=32,
            num_layers=2,
            num_single_layers=3,
            num_refiner_layers=1,
            text_embed_dim=32,
            pooled_projection_dim=32,
            rope_axes_dim=(8, 12, 12),
        ),
        "vae": _VAE.with_config(
            block_out_channels=[8, 16, 16, 16],
            layers_per_block=1,
            norm_num_groups=4,
        ),
        "text_encoder": text_encoders.TINY_LLAMA,
        "text_encoder_2": text_encoders.TINY_CLIP,
    },
    tokenizers={name: tokenizers.shrunk(spec) for name, spec in HUNYUAN_VIDEO.tokenizers.items()},
    defaults=GenerationDefaults(steps=12, guidance_scale=6.0, height=64, width=64, frames=5, fps=24),
    published=(),
)

PRESETS = (HUNYUAN_VIDEO, TINY_HUNYUAN_VIDEO)
