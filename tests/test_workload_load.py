"""Loading: real folders, dtypes, what is kept as published, and every way to get it wrong."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from stepscope.model.errors import RunFailedError, StepscopeError, UnreadableInputError, UsageError
from stepscope.workload import hub
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.load import load
from stepscope.workload.media import media_of
from stepscope.workload.placement import component_dtypes
from stepscope.workload.request import (
    CompileKind,
    LoadFormat,
    LoadRequest,
    Offload,
    OffloadKind,
    Precision,
)

CAT = GenerationRequest(prompt="a cat", steps=2, height=64, width=64)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """Nothing here may reach for the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def small(model="tiny/flux.1-schnell", **more):
    return load(LoadRequest(model=model, device="cpu", **more))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole pipeline of real files, tokenizers included, as save_pretrained writes it."""
    pipeline = load(LoadRequest(model="tiny/stable-diffusion-xl", device="cpu")).pipeline
    for name in ("tokenizer", "tokenizer_2"):
        setattr(pipeline, name, transformers.CLIPTokenizer(model_max_length=77))
    path = tmp_path_factory.mktemp("models") / "sdxl"
    pipeline.save_pretrained(path)
    return path


def test_a_local_folder_gives_the_saved_weights(folder):
    """Read from disk, the pipeline computes what the one in memory does, and so is the dummy right."""
    loaded = load(LoadRequest(model=str(folder), device="cpu"))
    twin = small("tiny/stable-diffusion-xl")
    twin.pipeline.tokenizer = twin.pipeline.tokenizer_2 = loaded.pipeline.tokenizer

    assert not loaded.random_weights
    assert loaded.notes == ()
    assert loaded.components["unet"] == "UNet2DConditionModel"
    images = [p.pipeline(**call_arguments(p.pipeline, CAT)).images for p in (loaded, twin)]
    np.testing.assert_allclose(*images, atol=1e-4)


def test_components_can_have_their_own_dtype(folder):
    """From disk and with random weights."""
    request = {"dtype": "bf16", "precision": Precision(vae="fp32", dit="fp16")}
    for loaded in (load(LoadRequest(model=str(folder), device="cpu", **request)), small(**request)):
        parts = loaded.pipeline.components
        assert parts["vae"].dtype == torch.float32
        assert parts["text_encoder"].dtype == torch.bfloat16
        assert (parts.get("unet") or parts["transformer"]).dtype == torch.float16
        assert loaded.dtype == "bfloat16"


def test_a_modular_folder_runs(folder, tmp_path):
    """A folder with modular_model_index.json is loaded and called by keywords."""
    blocks = pytest.importorskip("diffusers.modular_pipelines").StableDiffusionXLAutoBlocks()
    modular = blocks.init_pipeline()
    parts = load(LoadRequest(model=str(folder), device="cpu")).pipeline.components
    modular.update_components(**{name: part for name, part in parts.items() if part is not None})
    modular.save_pretrained(str(tmp_path / "modular"), overwrite_modular_index=True)

    loaded = load(LoadRequest(model=str(tmp_path / "modular"), device="cpu"))
    (media,) = media_of(loaded.pipeline(**call_arguments(loaded.pipeline, CAT)))

    assert media.data.shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ({}, UsageError, "without model_index.json"),
        ({"model_index.json": "{"}, UnreadableInputError, "cannot be read"),
        ({"model_index.json": "{}"}, UnreadableInputError, "_class_name"),
        ({"model_index.json": '{"_class_name": "NoSuchPipeline"}'}, UsageError, "newer diffusers"),
        (
            {
                "model_index.json": json.dumps(
                    {"_class_name": "DDPMPipeline", "unet": ["diffusers", "UNet2DModel"]}
                )
            },
            RunFailedError,
            "folder is whole",
        ),
    ],
    ids=["empty", "broken", "nameless", "unknown class", "incomplete"],
)
def test_a_bad_folder_is_told_in_one_line(tmp_path, files, kind, words):
    """What is wrong with it, and what to do."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(kind, match=words) as caught:
        load(LoadRequest(model=str(tmp_path), device="cpu"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"model": "Qwen/Qwen-Image"}, "hub cannot be reached.*--load-format dummy"),
        ({"model": "nobody/nothing"}, "hub cannot be reached"),
        ({"model": "not a name"}, "no model 'not a name'"),
        ({"model": "./nowhere"}, "no folder"),
        ({"model": "nobody/nothing", "load_format": LoadFormat.DUMMY}, "no preset.*Presets: "),
        ({"model": "tiny/qwen-imag"}, r"Did you mean tiny/qwen-image\?"),
        ({"device": "warp"}, "not a device"),
        ({"device": "cuda:77"}, "no such device here.*Available: .*cpu"),
        ({"dtype": "int4"}, "not a dtype.*bf16"),
        ({"precision": Precision(vae="fp7")}, "not a dtype"),
        ({"denoiser_layers": 0}, "one layer"),
        ({"model": "Qwen/Qwen-Image", "denoiser_layers": 2}, "--load-format dummy"),
        ({"offload": Offload(kind=OffloadKind.MODEL)}, "offload on a CPU"),
        (
            {"attention_backend": "warp"},
            "--attention-backend warp.*torch_sdpa.*Known: .*sage_varlen.*xformers",
        ),
        ({"attention_backend": "sage_atn"}, "Did you mean sage_attn"),
        ({"model": "tiny/ltx-video", "lora_path": "./nowhere"}, "no LoRA"),
        ({"model": "tiny/stable-diffusion-3.5-large", "compile": CompileKind.REGIONAL}, "repeated blocks"),
        ({"model": "tiny/hunyuanvideo", "image_input": True}, "takes no --image-path"),
    ],
    ids=str,
)
def test_what_cannot_be_loaded_is_a_usage_error(request_, words):
    """Exit status 2, one line, with the remedy."""
    with pytest.raises(UsageError, match=words) as caught:
        load(LoadRequest(**{"device": "cpu", **request_}))
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)


def test_any_fault_while_a_preset_is_built_is_one_of_loading(monkeypatch):
    """Under ``python -OO`` transformers cannot import its own models."""

    def fail(*_, **__):
        raise RuntimeError("Failed to import") from ValueError("no docstring\nat all")

    monkeypatch.setattr("stepscope.workload.dummy.build_pipeline", fail)
    with pytest.raises(RunFailedError, match="failed: ValueError: no docstring at all"):
        small()
    monkeypatch.setattr(hub, "sys", SimpleNamespace(flags=SimpleNamespace(optimize=2)))
    with pytest.raises(RunFailedError, match="python -OO"):
        small()


def test_out_of_memory_while_loading_says_what_helps(monkeypatch):
    """Not a traceback."""

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("stepscope.workload.dummy.build_pipeline", full)
    with pytest.raises(RunFailedError, match=r"does not fit.*offload"):
        small()


def test_progress_is_told_component_by_component():
    """Counting up to the number of components."""
    told = []
    load(LoadRequest(device="cpu"), lambda *what: told.append(what))

    assert told == [("transformer", 0, 3), ("vae", 1, 3), ("text_encoder", 2, 3), ("done", 3, 3)]


def test_published_precision_only_raises():
    """Wan's VAE runs in float32 beside a bfloat16 transformer, and a flag wins."""
    names, published = ("transformer", "vae"), {"vae": "float32"}
    bf16, fp32 = torch.bfloat16, torch.float32

    assert component_dtypes(names, bf16, Precision(), published) == {"transformer": bf16, "vae": fp32}
    assert component_dtypes(names, fp32, Precision(), {"vae": "bf16"}) == {"transformer": fp32, "vae": fp32}
    assert component_dtypes(names, bf16, Precision(vae="bf16"), published)["vae"] == bf16


def test_modules_that_the_architecture_keeps_in_float32_stay_there():
    """Wan keeps its norms and time embedding in float32, as from_pretrained does."""
    transformer = small("tiny/wan2.1-t2v-14b", dtype="bf16").pipeline.transformer

    assert transformer.blocks[0].norm2.weight.dtype == torch.float32
    assert transformer.blocks[0].attn1.to_q.weight.dtype == torch.bfloat16


def test_tied_weights_stay_tied():
    """T5's embedding stands in two places and is one parameter."""
    encoder = small().pipeline.text_encoder_2

    assert encoder.shared.weight is encoder.encoder.embed_tokens.weight


def test_loading_leaves_no_global_state():
    """Default dtype, library verbosity and random state are what they were."""
    from diffusers.utils import logging

    torch.manual_seed(3)
    before = (torch.get_default_dtype(), logging.get_verbosity(), torch.get_rng_state().tolist())
    small(dtype="bf16")

    assert before == (torch.get_default_dtype(), logging.get_verbosity(), torch.get_rng_state().tolist())


def test_errors_share_one_base():
    """So that one place prints them."""
    assert issubclass(UsageError, StepscopeError)
