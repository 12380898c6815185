"""Text encoders that several presets share: published configurations, and small twins of the same classes.

Each figure is from the ``config.json`` of the model named in the comment.
"""

from __future__ import annotations

from typing import Any

from stepscope.workload.presets.spec import ComponentSpec


def clip_text(class_name: str, **config: Any) -> ComponentSpec:
    """A CLIP text tower; ``class_name`` says whether a projection follows."""
    return ComponentSpec(
        library="transformers", class_name=class_name, config_class="CLIPTextConfig", config=config
    )


def t5_encoder(class_name: str, config_class: str, **config: Any) -> ComponentSpec:
    """The encoder half of a T5-like model."""
    return ComponentSpec(
        library="transformers", class_name=class_name, config_class=config_class, config=config
    )


_CLIP_L_CONFIG: dict[str, Any] = {  # openai/clip-vit-large-patch14, text_config
    "vocab_size": 49408,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 77,
    "hidden_act": "quick_gelu",
    "projection_dim": 768,
    "bos_token_id": 49406,
    "eos_token_id": 49407,
    "pad_token_id": 49407,
}
CLIP_L = clip_text("CLIPTextModel", **_CLIP_L_CONFIG)
CLIP_L_PROJECTED = clip_text("CLIPTextModelWithProjection", **_CLIP_L_CONFIG)
OPENCLIP_BIG_G = clip_text(  # stabilityai/stable-diffusion-xl-base-1.0/text_encoder_2
    "CLIPTextModelWithProjection",
    vocab_size=49408,
    hidden_size=1280,
    intermediate_size=5120,
    num_hidden_layers=32,
    num_attention_heads=20,
    max_position_embeddings=77,
    hidden_act="gelu",
    projection_dim=1280,
    bos_token_id=49406,
    eos_token_id=49407,
    pad_token_id=1,
)

T5_XXL = t5_encoder(  # google/t5-v1_1-xxl
    "T5EncoderModel",
    "T5Config",
    vocab_size=32128,
    d_model=4096,
    d_kv=64,
    d_ff=10240,
    num_layers=24,
    num_heads=64,
    relative_attention_num_buckets=32,
    relative_attention_max_distance=128,
    feed_forward_proj="gated-gelu",
    layer_norm_epsilon=1e-6,
)
UMT5_XXL = t5_encoder(  # google/umt5-xxl
    "UMT5EncoderModel",
    "UMT5Config",
    vocab_size=256384,
    d_model=4096,
    d_kv=64,
    d_ff=10240,
    num_layers=24,
    num_heads=64,
    relative_attention_num_buckets=32,
    relative_attention_max_distance=128,
    feed_forward_proj="gated-gelu",
    layer_norm_epsilon=1e-6,
)

QWEN2_5_VL_7B = ComponentSpec(  # Qwen/Qwen2.5-VL-7B-Instruct
    library="transformers",
    class_name="Qwen2_5_VLForConditionalGeneration",
    config_class="Qwen2_5_VLConfig",
    config={
        "text_config": {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128000,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]},
            "tie_word_embeddings": False,
        },
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
        "tie_word_embeddings": False,
    },
)
QWEN3_4B = ComponentSpec(  # Qwen/Qwen3-4B; the text encoder of Tongyi-MAI/Z-Image-Turbo
    library="transformers",
    class_name="Qwen3Model",
    config_class="Qwen3Config",
    config={
        "vocab_size": 151936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
    },
)
LLAVA_LLAMA_3_8B = ComponentSpec(  # xtuner/llava-llama-3-8b-v1_1-transformers, its language model
    library="transformers",
    class_name="LlamaModel",
    config_class="LlamaConfig",
    config={
        "vocab_size": 128320,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "pad_token_id": 128258,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
)

# Small twins: the same classes and code paths, a few layers. Vocabularies of 1000 (``tokenizers.shrunk``).


def _tiny_clip(class_name: str, hidden_size: int = 32) -> ComponentSpec:
    return clip_text(
        class_name,
        vocab_size=1000,
        hidden_size=hidden_size,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=77,
        hidden_act="quick_gelu",
        projection_dim=hidden_size,
        bos_token_id=998,
        eos_token_id=999,
        pad_token_id=999,
    )


def _tiny_t5(class_name: str, config_class: str, d_model: int = 32) -> ComponentSpec:
    return t5_encoder(
        class_name,
        config_class,
        vocab_size=1000,
        d_model=d_model,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
    )


TINY_CLIP = _tiny_clip("CLIPTextModel")
TINY_CLIP_PROJECTED = _tiny_clip("CLIPTextModelWithProjection")
TINY_T5 = _tiny_t5("T5EncoderModel", "T5Config")
TINY_T5_WIDE = _tiny_t5("T5EncoderModel", "T5Config", d_model=64)
TINY_UMT5 = _tiny_t5("UMT5EncoderModel", "UMT5Config")

_TINY_DECODER: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 997,
    "eos_token_id": 999,
}
TINY_QWEN2_5_VL = ComponentSpec(
    library="transformers",
    class_name="Qwen2_5_VLForConditionalGeneration",
    config_class="Qwen2_5_VLConfig",
    config={
        "text_config": _TINY_DECODER
        | {
            "rope_theta": 1000000.0,
            "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]},
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 32,
        },
        "bos_token_id": 997,
        "eos_token_id": 999,
    },
)
TINY_QWEN3 = ComponentSpec(
    library="transformers",
    class_name="Qwen3Model",
    config_class="Qwen3Config",
    config=_TINY_DECODER | {"head_dim": 8},
)
TINY_LLAMA = ComponentSpec(
    library="transformers",
    class_name="LlamaModel",
    config_class="LlamaConfig",
    config=_TINY_DECODER
    | {"pad_token_id": 999, "bos_token_id": 995, "eos_token_id": 998, "num_hidden_layers": 3},
)
