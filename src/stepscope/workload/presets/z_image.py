"""Z-Image-Turbo. Figures: ``config.json`` of each component of Tongyi-MAI/Z-Image-Turbo on the hub."""

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
    class_name="ZImageTransformer2DModel",
    config={
        "all_patch_size": (2,),
        "all_f_patch_size": (1,),
        "in_channels": 16,
        "dim": 3840,
        "n_layers": 30,
        "n_refiner_layers": 2,
        "n_heads": 30,
        "n_kv_heads": 30,
        "norm_eps": 1e-5,
        "qk_norm": True,
        "cap_feat_dim": 2560,
        "rope_theta": 256.0,
        "t_scale": 1000.0,
        "axes_dims": [32, 48, 48],
        "axes_lens": [1536, 512, 512],
    },
    depth_keys=("n_layers", "n_refiner_layers"),
)

Z_IMAGE_TURBO = Preset(
    id="Tongyi-MAI/Z-Image-Turbo",
    pipeline_class="ZImagePipeline",
    components={
        "transformer": _TRANSFORMER,
        "vae": autoencoders.FLUX,
        "text_encoder": text_encoders.QWEN3_4B,
    },
    tokenizers={"tokenizer": tokenizers.QWEN},
    scheduler=SchedulerSpec(
        class_name="FlowMatchEulerDiscreteScheduler",
        config={"num_train_timesteps": 1000, "use_dynamic_shifting": False, "shift": 3.0},
    ),
    # Model card: num_inference_steps=9 ("this actually results in 8 DiT forwards"), guidance 0.
    defaults=GenerationDefaults(steps=9, guidance_scale=0.0, height=1024, width=1024),
    published=(
        PublishedCount(
            component="transformer", parameters=6.15e9, tolerance=0.005, source="arXiv 2511.22699: 6.15B"
        ),
        PublishedCount(
            component="text_encoder",
            parameters=4.02e9,
            tolerance=0.005,
            source="Qwen/Qwen3-4B model page: 4.02B, the output layer tied",
        ),
    ),
)
TINY_Z_IMAGE_TURBO = replace(
    Z_IMAGE_TURBO,
    id="tiny/z-image-turbo",
    components={
        "transformer": _TRANSFORMER.with_config(
            dim=256,
            n_layers=3,
            n_refiner_layers=1,
            n_heads=4,
            n_kv_heads=4,
            cap_feat_dim=32,
            axes_dims=[16, 24, 24],
            axes_lens=[1536, 64, 64],
        ),
        "vae": autoencoders.tiny(autoencoders.FLUX),
        "text_encoder": text_encoders.TINY_QWEN3,
    },
    tokenizers={"tokenizer": tokenizers.shrunk(tokenizers.QWEN)},
    defaults=GenerationDefaults(steps=9, guidance_scale=0.0, height=64, width=64),
    published=(),
)

PRESETS = (Z_IMAGE_TURBO, TINY_Z_IMAGE_TURBO)
