"""Loading: real folders, placement, tuning, and every way to get it wrong."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import pipelines
from stepscope.model.errors import RunFailedError, StepscopeError, UnreadableInputError, UsageError
from stepscope.workload import hub, tuning
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


class Program:
    """What a pickle can hold beside weights: a call, made while it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def pickled(folder):
    """The folder's weights as older tools left them: no safetensors."""
    for name in ("unet", "text_encoder"):
        [weights] = (folder / name).glob("*.safetensors")
        kind = "diffusion_pytorch_model" if name == "unet" else "pytorch_model"
        torch.save(safetensors.torch.load_file(weights), folder / name / f"{kind}.bin")
        weights.unlink()
    return folder


def test_weights_in_pickles_are_read_as_weights_only(tmp_path, capfd):
    """They load, and nothing calls that an error."""
    pipelines.stable_diffusion().save_pretrained(tmp_path)

    loaded = load(LoadRequest(model=str(pickled(tmp_path)), device="cpu"))

    assert not loaded.random_weights
    assert "rror" not in capfd.readouterr().err


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model.bin", "text_encoder/pytorch_model.bin"])
def test_a_program_in_a_pickle_is_not_run(tmp_path, part):
    """One line says what it is; whichever library reads that part."""
    pipelines.stable_diffusion().save_pretrained(tmp_path)
    torch.save({"weight": Program(tmp_path / "it ran")}, pickled(tmp_path) / part)

    with pytest.raises(RunFailedError, match=r"more than weights.*\.safetensors") as caught:
        load(LoadRequest(model=str(tmp_path), device="cpu"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "it ran").exists()


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


def hub_error(kind):
    """As the hub's library raises it, whichever HTTP client it has: it reads no more of the response."""
    request = SimpleNamespace(method="GET", url="https://hub.invalid")
    return kind("no", response=SimpleNamespace(status_code=401, headers={}, request=request))


def hub_client():
    """The module of the HTTP client that the hub's library here stands upon."""
    from huggingface_hub.errors import HfHubHTTPError

    roots = {base.__module__.split(".")[0] for base in HfHubHTTPError.__mro__}
    (name,) = roots - {"builtins", "huggingface_hub"}
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GatedRepoError", "gated.*hf auth login.*--load-format dummy"),
        ("RepositoryNotFoundError", "no model.*hf auth login"),
        ("RevisionNotFoundError", "--revision"),
        ("RemoteEntryNotFoundError", "not a diffusers pipeline"),
    ],
)
def test_what_the_hub_refuses_is_a_usage_error(monkeypatch, name, words):
    """However deep diffusers has wrapped the hub's answer."""
    import diffusers
    from huggingface_hub import errors

    def refuse(*_, **__):
        try:
            raise hub_error(getattr(errors, name))
        except errors.HfHubHTTPError as error:
            raise OSError("something vague") from error

    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", refuse)
    with pytest.raises(UsageError, match=words):
        hub.load_pipeline(LoadRequest(), "black-forest-labs/FLUX.1-dev", {})


def clients_errors():
    """The installed client's own error, and those of clients that are not: known by the name alone."""
    client = hub_client()
    yield getattr(client, "ConnectError", None) or client.exceptions.ConnectionError
    for module in ("httpx", "httpx2", "httpcore2._exceptions", "requests.exceptions", "urllib3.exceptions"):
        yield type("ConnectError", (Exception,), {"__module__": module})


@pytest.mark.parametrize("kind", list(clients_errors()), ids=lambda kind: kind.__module__)
def test_a_hub_that_cannot_be_reached_is_told_whatever_the_http_client(monkeypatch, kind):
    """The hub's library has changed its client twice."""
    import diffusers

    def refuse(*_, **__):
        raise OSError("something vague") from kind("no route")

    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", refuse)
    with pytest.raises(UsageError, match="hub cannot be reached"):
        hub.load_pipeline(LoadRequest(), "black-forest-labs/FLUX.1-dev", {})


def test_out_of_memory_while_loading_says_what_helps(monkeypatch):
    """Not a traceback."""

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("stepscope.workload.dummy.build_pipeline", full)
    with pytest.raises(RunFailedError, match=r"does not fit.*offload"):
        small()


def test_what_was_applied_is_said():
    """Attention, compile and VAE memory, as text."""
    loaded = small(
        attention_backend="torch_sdpa", compile=CompileKind.REGIONAL, vae_tiling=True, vae_slicing=True
    )

    assert loaded.attention_backend == "native"
    assert loaded.compile == "regional"
    assert loaded.offload == "none"
    assert {"VAE tiling on", "VAE slicing on"} <= set(loaded.notes)
    assert loaded.pipeline.vae.use_tiling
    compiled = [m for m in loaded.pipeline.transformer.modules() if m._compiled_call_impl is not None]
    assert len(compiled) == 5


@pytest.mark.parametrize(("kind", "in_blocks"), [(OffloadKind.BLOCK, True), (OffloadKind.LEAF, False)])
@pytest.mark.parametrize("model", ["tiny/qwen-image", "tiny/stable-diffusion-xl", "tiny/wan2.1-t2v-1.3b"])
def test_groups_are_blocks_in_denoisers_and_leaves_where_forward_is_not_called(model, kind, in_blocks):
    """A VAE is entered by decode: whatever of it is no leaf group would stay on the host."""
    pipeline = small(model).pipeline
    cpu = torch.device("cpu")

    said = tuning._offload_groups(pipeline, Offload(kind=kind, pin=False), cpu)

    assert said == ("block x 1, pageable" if in_blocks else "leaf, pageable")
    denoiser = next(iter(tuning.denoisers(pipeline).values()))
    assert _grouped(denoiser, torch.nn.Linear) is not in_blocks
    assert _grouped(pipeline.vae, torch.nn.Conv2d, torch.nn.Conv3d)
    assert _grouped(pipeline.text_encoder, torch.nn.Linear)


def _grouped(module, *kinds):
    """Whether every layer of these kinds is a group of its own; half of them fails."""
    hooks = [
        any("group" in name for name in part._diffusers_hook.hooks)
        if hasattr(part, "_diffusers_hook")
        else False
        for part in module.modules()
        if isinstance(part, kinds)
    ]
    assert hooks
    assert all(hooks) or not any(hooks)
    return all(hooks)


def test_what_cannot_be_grouped_stays_on_the_device_and_is_named():
    """diffusers refuses group offloading for a few classes; that is no reason not to run."""
    pipeline = small("tiny/stable-diffusion-xl").pipeline
    pipeline.vae._supports_group_offloading = False

    said = tuning._offload_groups(pipeline, Offload(kind=OffloadKind.BLOCK, pin=False), torch.device("cpu"))

    assert said == "block x 1, pageable, vae on the device"


def test_a_lora_is_added_and_changes_the_picture(tmp_path):
    """Saved by peft, loaded by path, scaled."""
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    maker = small()
    maker.pipeline.transformer.add_adapter(
        LoraConfig(r=2, target_modules=["to_q"], init_lora_weights="gaussian")
    )
    state = get_peft_model_state_dict(maker.pipeline.transformer)
    state = {key: torch.ones_like(value) for key, value in state.items()}
    type(maker.pipeline).save_lora_weights(tmp_path, transformer_lora_layers=state)
    (tmp_path / "empty").mkdir()

    with_lora, without = small(lora_path=str(tmp_path), lora_scale=0.5), small()
    images = [p.pipeline(**call_arguments(p.pipeline, CAT)).images for p in (with_lora, without)]

    assert with_lora.lora == f"{tmp_path} x 0.5"
    assert not np.array_equal(*images)
    with pytest.raises(UsageError, match="cannot be applied"):
        small(lora_path=str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("tiny/flux.1-dev", "FluxImg2ImgPipeline"),
        ("tiny/qwen-image", "QwenImageImg2ImgPipeline"),
        ("tiny/ltx-video", "LTXImageToVideoPipeline"),
    ],
)
def test_an_image_selects_the_pipeline_that_takes_one(model, expected, tmp_path):
    """Image-to-image and image-to-video over the same components."""
    from PIL import Image

    Image.new("RGB", (80, 80), "red").save(tmp_path / "red.png")
    loaded = small(model, image_input=True)
    asked = GenerationRequest(prompt="a cat", steps=4, image_paths=(str(tmp_path / "red.png"),))
    (media,) = media_of(loaded.pipeline(**call_arguments(loaded.pipeline, asked, loaded.defaults)))

    assert type(loaded.pipeline).__name__ == expected
    assert media.data.shape[-3:] == (64, 64, 3)
    assert media.finite


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
