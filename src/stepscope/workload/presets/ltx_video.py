"""LTX-Video 2B (0.9.0), what Lightricks/LTX-Video holds as a diffusers pipeline.

Figures: that repository's ``config.json`` files, as LTX-Video's own ``diffusers_config_mapping.py`` and
diffusers' ``scripts/convert_ltx_to_diffusers.py`` have them.
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
    class_name="LTXVideoTransformer3DModel",
    config={
        "in_channels": 128,
        "out_channels": 128,
        "patch_size": 1,
        "patch_size_t": 1,
        "num_attention_heads": 32,
        "attention_head_dim": 64,
        "cross_attention_dim": 2048,
        "num_layers": 28,
        "activation_fn": "gelu-approximate",
        "qk_norm": "rms_norm_across_heads",
        "norm_elementwise_affine": False,
        "norm_eps": 1e-6,
        "caption_channels": 4096,
        "attention_bias": True,
        "attention_out_bias": True,
    },
    depth_keys=("num_layers",),
)
_VAE = ComponentSpec(
    library="diffusers",
    class_name="AutoencoderKLLTXVideo",
    config={
        "in_channels": 3,
        "out_channels": 3,
        "latent_channels": 128,
        "block_out_channels": (128, 256, 512, 512),
        "decoder_block_out_channels": (128, 256, 512, 512),
        "layers_per_block": (4, 3, 3, 3, 4),
        "decoder_layers_per_block": (4, 3, 3, 3, 4),
        "spatio_temporal_scaling": (True, True, True, False),
        "decoder_spatio_temporal_scaling": (True, True, True, False),
        "patch_size": 4,
        "patch_size_t": 1,
        "resnet_norm_eps": 1e-6,
        "scaling_factor": 1.0,
        "encoder_causal": True,
        "decoder_causal": False,
        "timestep_conditioning": False,
    },
)

LTX_VIDEO = Preset(
    id="Lightricks/LTX-Video",
    pipeline_class="LTXPipeline",
    components={"transformer": _TRANSFORMER, "vae": _VAE, "text_encoder": text_encoders.T5_XXL},
    tokenizers={"tokenizer": replace(tokenizers.T5, max_length=128)},
    scheduler=SchedulerSpec(
        class_name="FlowMatchEulerDiscreteScheduler",
        config={
            "num_train_timesteps": 1000,
            "use_dynamic_shifting": True,
            "base_shift": 0.95,
            "max_shift": 2.05,
            "base_image_seq_len": 1024,
            "max_image_seq_len": 4096,
            "shift_terminal": 0.1,
            "shift": 1.0,
        },
    ),
    # diffusers' documentation: 50 steps, guidance 3, 161 frames of 480x704 at 24 fps.
    defaults=GenerationDefaults(steps=50, guidance_scale=3.0, height=480, width=704, frames=161, fps=24),
    published=(
        PublishedCount(
            component="transformer",
            parameters=1.9e9,
            tolerance=0.03,
            source="arXiv 2501.00103: 1.9B parameters",
        ),
        PublishedCount(
            component="vae",
            parameters=1_676_798_532 / 4,
            tolerance=0.001,
            source="vae/diffusion_pytorch_model.safetensors: 1,676,798,532 bytes of float32",
        ),
    ),
)
TINY_LTX_VIDEO = replace(
    LTX_VIDEO,
    id="tiny/ltx-video",
    components={
        "transformer": _TRANSFORMER.with_config(
            num_attention_heads=4,
            attention_head_dim=64,
            cross_attention_dim=256,
            num_layers=4,
            caption_channels=32,
        ),
        "vae": _VAE.with_config(
            block_out_channels=(16, 32, 64, 64),
            decoder_block_out_channels=(16, 32, 64, 64),
            layers_per_block=(1, 1, 1, 1, 1),
            decoder_layers_per_block=(1, 1, 1, 1, 1),
        ),
        "text_encoder": text_encoders.TINY_T5,
    },
    tokenizers={name: tokenizers.shrunk(spec) for name, spec in LTX_VIDEO.tokenizers.items()},
    defaults=GenerationDefaults(steps=12, guidance_scale=3.0, height=64, width=64, frames=9, fps=24),
    published=(),
)

PRESETS = (LTX_VIDEO, TINY_LTX_VIDEO)
