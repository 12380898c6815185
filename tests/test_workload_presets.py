"""Every preset: built offline, finite, repeatable, and as big as published."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.dummy import empty_component, with_depth
from stepscope.workload.load import load
from stepscope.workload.presets import DEFAULT_MODEL, PRESETS, find_preset
from stepscope.workload.request import Loaded, LoadRequest
from stepscope.workload.tokenizer import CountingTokenizer

TINY = sorted(name for name in PRESETS if name.startswith("tiny/"))
FULL = sorted(name for name in PRESETS if not name.startswith("tiny/"))
PROMPT = "A Logo With Bold Large Text"


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """Nothing here may reach for the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module", params=TINY)
def tiny(request) -> Loaded:
    """Each tiny preset, loaded once."""
    loaded = load(LoadRequest(model=request.param, device="cpu"))
    loaded.pipeline.set_progress_bar_config(disable=True)
    return loaded


def media(loaded: Loaded, **asked) -> np.ndarray:
    asked = {"steps": 2, "prompt": PROMPT, **asked}
    arguments = call_arguments(loaded.pipeline, GenerationRequest(**asked), loaded.defaults)
    return np.asarray(loaded.pipeline(**arguments)[0])


def test_a_tiny_preset_runs_finite_and_gives_the_same_bits_again(tiny):
    """Two calls with one seed agree in every bit, another prompt does not."""
    first = media(tiny)

    assert np.isfinite(first).all()
    assert first.std() > 0.01
    assert first.shape[-3:] == (tiny.defaults.height, tiny.defaults.width, 3)
    if tiny.defaults.frames is not None:
        assert first.shape[1] == tiny.defaults.frames >= 2
    assert first.tobytes() == media(tiny).tobytes()
    assert first.tobytes() != media(tiny, prompt="something else entirely").tobytes()


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_preset_is_finite_in_bfloat16(name):
    """Random weights are scaled so that half precision does not overflow."""
    loaded = load(LoadRequest(model=name, device="cpu", dtype="bf16"))
    loaded.pipeline.set_progress_bar_config(disable=True)

    assert np.isfinite(media(loaded)).all()


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_twin_has_the_classes_of_the_full_model(name):
    """Tiny and full presets differ in figures only."""
    full = [PRESETS[other] for other in FULL if other.lower().split("/")[1].startswith(name.split("/")[1])]
    assert len(full) == 1, f"no single full twin of {name}"
    tiny = PRESETS[name]

    def classes(preset):
        return {part: spec.class_name for part, spec in preset.components.items()}

    assert classes(tiny) == classes(full[0])
    assert tiny.pipeline_class == full[0].pipeline_class
    assert tiny.scheduler == full[0].scheduler
    assert tiny.options == full[0].options
    assert set(tiny.tokenizers) == set(full[0].tokenizers)


@pytest.mark.parametrize("name", FULL)
def test_a_full_preset_has_the_published_number_of_parameters(name):
    """Counted on the meta device: no memory, no weights."""
    preset = PRESETS[name]
    counts = {
        part: sum(p.numel() for p in empty_component(spec, torch.bfloat16).parameters())
        for part, spec in preset.components.items()
    }

    assert preset.published
    for published in preset.published:
        counted = sum(counts[part] for part in published.component.split("+"))
        assert counted == pytest.approx(published.parameters, rel=published.tolerance), published


def test_no_parameter_stays_on_the_meta_device_and_buffers_are_not_random(tiny):
    """Everything is real after loading, and two weight seeds differ in parameters but not in buffers."""
    other = load(LoadRequest(model=tiny.model, device="cpu", weight_seed=1))
    differing = 0
    for name, module in tiny.pipeline.components.items():
        if not isinstance(module, torch.nn.Module):
            continue
        twin = other.pipeline.components[name]
        for (_, a), (_, b) in zip(module.named_parameters(), twin.named_parameters(), strict=True):
            assert a.device.type == "cpu"
            assert not a.requires_grad
            differing += not torch.equal(a, b)
        for (key, a), (_, b) in zip(module.named_buffers(), twin.named_buffers(), strict=True):
            assert torch.equal(a, b), f"{name}.{key}"
        assert not module.training
    assert differing


def test_the_same_weight_seed_gives_the_same_weights():
    """Weights are a function of the seed, the component's name and the device."""
    one, two = (load(LoadRequest(model="tiny/flux.1-schnell", device="cpu")) for _ in range(2))

    for a, b in zip(
        one.pipeline.transformer.parameters(), two.pipeline.transformer.parameters(), strict=True
    ):
        assert torch.equal(a, b)


def test_depth_can_be_cut():
    """denoiser_layers caps each kind of repeated block and is said in the notes."""
    loaded = load(LoadRequest(model="tiny/flux.1-schnell", device="cpu", denoiser_layers=1))

    assert len(loaded.pipeline.transformer.transformer_blocks) == 1
    assert len(loaded.pipeline.transformer.single_transformer_blocks) == 1
    assert any("cut to 1" in note for note in loaded.notes)


def test_every_denoiser_can_be_cut():
    """Every preset says where its depth is kept."""
    for preset in PRESETS.values():
        assert with_depth(preset, 1) != preset, preset.id


def test_the_default_model_is_embedded():
    """Without a model, tiny/qwen-image."""
    assert load(LoadRequest(device="cpu")).model == DEFAULT_MODEL


def test_presets_are_found_whatever_the_case():
    """Hub ids are often typed in lower case."""
    assert find_preset("qwen/qwen-image") is PRESETS["Qwen/Qwen-Image"]
    assert find_preset("nobody/nothing") is None


QWEN_TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, "
    "spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n"
)


def tokenizer(model: str, name: str = "tokenizer") -> CountingTokenizer:
    return CountingTokenizer(PRESETS[model].tokenizers[name])


def test_qwen_images_template_has_its_real_length():
    """The pipeline drops exactly 34 tokens, so the template must be 34."""
    assert len(tokenizer("Qwen/Qwen-Image")(QWEN_TEMPLATE).input_ids) == 34
    assert len(tokenizer("tiny/qwen-image")(QWEN_TEMPLATE).input_ids) == 34
    assert len(tokenizer("Qwen/Qwen-Image")(PROMPT).input_ids) == 6


def test_clip_pads_and_truncates_to_77():
    """Start and end markers included."""
    clip = tokenizer("black-forest-labs/FLUX.1-dev")
    ids = clip(PROMPT, padding="max_length", max_length=77, truncation=True).input_ids

    assert len(ids) == 77
    assert ids[0] == 49406
    assert ids[7:] == [49407] * 70
    assert len(clip(PROMPT * 50, padding="max_length", max_length=77, truncation=True).input_ids) == 77


def test_t5_ends_with_its_end_marker_and_pads_with_zero():
    """512 tokens for FLUX.1, the attention mask true only for real ones."""
    encoded = tokenizer("black-forest-labs/FLUX.1-dev", "tokenizer_2")(
        PROMPT, padding="max_length", max_length=512, truncation=True
    )

    assert len(encoded.input_ids) == 512
    assert encoded.input_ids[6:8] == [1, 0]
    assert sum(encoded.attention_mask) == 7


def test_token_ids_are_stable_and_decode():
    """An id comes from the piece's own bytes, so every process agrees."""
    one, two = tokenizer("Qwen/Qwen-Image"), tokenizer("Qwen/Qwen-Image")
    ids = one("a cat").input_ids

    assert ids == two("a cat").input_ids
    assert one.decode(ids).split() == ["a", "cat"]
    assert max(one("naïve 东京 ☃ 12345 " + "x" * 50).input_ids) < 151643


def test_hunyuanvideos_template_has_its_real_length():
    """The pipeline crops exactly 95 tokens."""
    from diffusers.pipelines.hunyuan_video.pipeline_hunyuan_video import DEFAULT_PROMPT_TEMPLATE

    start = DEFAULT_PROMPT_TEMPLATE["template"].split("{}")[0]

    assert len(tokenizer("hunyuanvideo-community/HunyuanVideo")(start).input_ids) == 95
    assert DEFAULT_PROMPT_TEMPLATE["crop_start"] == 95


def test_z_images_chat_template_is_qwens():
    """Role markers around the prompt, the assistant's turn opened."""
    qwen = tokenizer("Tongyi-MAI/Z-Image-Turbo")
    messages = [{"role": "user", "content": "a cat"}]
    text = qwen.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=True
    )

    assert text == "<|im_start|>user\na cat<|im_end|>\n<|im_start|>assistant\n"
    assert len(qwen(text).input_ids) == 10


def test_a_long_word_and_other_scripts_take_more_tokens():
    """As rare words do in byte-pair vocabularies."""
    t5 = tokenizer("Lightricks/LTX-Video")

    assert len(t5("incomprehensibilities").input_ids) == 4
    assert len(t5("一只猫").input_ids) == 4
    assert t5.model_max_length == 128
