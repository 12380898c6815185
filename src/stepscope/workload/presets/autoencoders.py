"""Autoencoders that several presets have, with the configurations of their published repositories."""

from __future__ import annotations

from dataclasses import replace

from stepscope.workload.presets.spec import ComponentSpec

STABLE_DIFFUSION_XL = ComponentSpec(
    library="diffusers",
    class_name="AutoencoderKL",
    config={
        "in_channels": 3,
        "out_channels": 3,
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
        "block_out_channels": [128, 256, 512, 512],
        "layers_per_block": 2,
        "latent_channels": 4,
        "norm_num_groups": 32,
        "sample_size": 1024,
        "scaling_factor": 0.13025,
        "force_upcast": True,
    },
)
FLUX = STABLE_DIFFUSION_XL.with_config(
    latent_channels=16,
    scaling_factor=0.3611,
    shift_factor=0.1159,
    use_quant_conv=False,
    use_post_quant_conv=False,
)
"""Z-Image has the same."""
STABLE_DIFFUSION_3 = FLUX.with_config(scaling_factor=1.5305, shift_factor=0.0609)

WAN = ComponentSpec(  # channel means and deviations of the latents are diffusers' defaults
    library="diffusers",
    class_name="AutoencoderKLWan",
    config={
        "base_dim": 96,
        "z_dim": 16,
        "dim_mult": [1, 2, 4, 4],
        "num_res_blocks": 2,
        "attn_scales": [],
        "temperal_downsample": [False, True, True],
    },
)
QWEN_IMAGE = replace(WAN, class_name="AutoencoderKLQwenImage")
"""Wan 2.1's, under a class of its own; its latents have the same means and deviations."""


def tiny(autoencoder: ComponentSpec) -> ComponentSpec:
    """An AutoencoderKL with a quarter to an eighth of the channels and one layer a block."""
    return autoencoder.with_config(block_out_channels=[32, 64, 64, 64], layers_per_block=1, norm_num_groups=8)
