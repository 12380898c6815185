"""From flags to call arguments, by signature alone."""

from __future__ import annotations

import pytest
import torch

from stepscope.model.errors import UsageError
from stepscope.workload.arguments import GenerationRequest, call_arguments
from stepscope.workload.describe import describe
from stepscope.workload.load import load
from stepscope.workload.media import media_of
from stepscope.workload.presets import PRESETS
from stepscope.workload.presets.spec import GenerationDefaults
from stepscope.workload.request import Loaded, LoadRequest

TINY = sorted(name for name in PRESETS if name.startswith("tiny/"))


class Config(dict):
    """diffusers' configurations are mappings."""


class Part:
    def __init__(self, **config):
        self.config = Config(config)


class Pipeline:
    """A signature with a device and components: all that argument mapping looks at."""

    device = torch.device("cpu")

    def __init__(self, **config):
        self.components = {"transformer": Part(**config), "tokenizer": object()}


class DistilledPipeline(Pipeline):
    """As FluxPipeline: its own CFG off by default."""

    def __call__(
        self,
        prompt=None,
        negative_prompt=None,
        true_cfg_scale=1.0,
        height=None,
        width=None,
        num_inference_steps=28,
        guidance_scale=3.5,
        num_images_per_prompt=1,
        generator=None,
        output_type="pil",
    ): ...


class TrueCfgPipeline(Pipeline):
    """As QwenImagePipeline: CFG on by default."""

    def __call__(
        self,
        prompt=None,
        negative_prompt=None,
        true_cfg_scale=4.0,
        num_inference_steps=50,
        guidance_scale=None,
        generator=None,
        output_type="pil",
    ): ...


class VideoPipeline(Pipeline):
    """As LTXImageToVideoPipeline."""

    def __call__(
        self,
        image,
        prompt=None,
        num_frames=161,
        frame_rate=25,
        guidance_scale=3,
        num_videos_per_prompt=1,
        generator=None,
        output_type="np",
    ): ...


class PlainPipeline(Pipeline):
    """Takes little."""

    def __call__(self, prompt, num_inference_steps=10): ...


def arguments(pipeline, defaults=None, **asked):
    made = call_arguments(pipeline, GenerationRequest(prompt="a cat", **asked), defaults)
    made.pop("generator", None)
    return made


def test_flags_go_under_the_pipelines_own_names():
    """Steps, size and outputs; images as arrays."""
    made = arguments(
        DistilledPipeline(), steps=7, height=64, width=32, guidance_scale=2.0, outputs_per_prompt=2
    )

    assert made == {
        "prompt": "a cat",
        "num_inference_steps": 7,
        "height": 64,
        "width": 32,
        "guidance_scale": 2.0,
        "num_images_per_prompt": 2,
        "output_type": "np",
    }


def test_silence_leaves_the_pipelines_defaults():
    """Nothing is passed that was not asked."""
    assert arguments(DistilledPipeline()) == {"prompt": "a cat", "output_type": "np"}


def test_model_defaults_fill_in_and_flags_win():
    """A preset's defaults stand below the command line."""
    defaults = GenerationDefaults(steps=4, guidance_scale=0.0, height=64)
    made = arguments(DistilledPipeline(), defaults, steps=9)

    assert (made["num_inference_steps"], made["guidance_scale"], made["height"]) == (9, 0.0, 64)


def test_guidance_scale_means_true_cfg_where_the_model_does_it():
    """Qwen-Image: without guidance embedding, and with the negative prompt that makes it real."""
    made = arguments(TrueCfgPipeline(guidance_embeds=False), guidance_scale=3.0)

    assert made["true_cfg_scale"] == 3.0
    assert made["negative_prompt"] == " "
    assert "guidance_scale" not in made


def test_guidance_is_real_by_default_where_the_pipeline_says_so():
    """True CFG 4 by default needs a negative prompt, or diffusers skips it."""
    assert arguments(TrueCfgPipeline())["negative_prompt"] == " "
    assert arguments(TrueCfgPipeline(), guidance_scale=1.0).get("negative_prompt") is None
    assert arguments(TrueCfgPipeline(), negative_prompt="fog")["negative_prompt"] == "fog"


def test_a_distilled_model_takes_the_scale_as_an_input():
    """Guidance embeddings: the scale goes under its own name."""
    assert arguments(TrueCfgPipeline(guidance_embeds=True), guidance_scale=3.0)["guidance_scale"] == 3.0
    made = arguments(DistilledPipeline(guidance_embeds=True), guidance_scale=3.0, true_cfg_scale=2.0)
    assert (made["guidance_scale"], made["true_cfg_scale"], made["negative_prompt"]) == (3.0, 2.0, " ")


def test_an_explicit_true_cfg_scale_wins():
    """Over --guidance-scale and over the model's default."""
    assert arguments(TrueCfgPipeline(), true_cfg_scale=2.0, guidance_scale=5.0)["true_cfg_scale"] == 2.0
    defaults = GenerationDefaults(guidance_scale=4.0)
    assert arguments(TrueCfgPipeline(), defaults, true_cfg_scale=2.0)["true_cfg_scale"] == 2.0


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        ({"negative_prompt": "fog"}, "--negative-prompt"),
        ({"guidance_scale": 2.0}, "--guidance-scale"),
        ({"guidance_scale_2": 2.0}, "--guidance-scale-2"),
        ({"true_cfg_scale": 2.0}, "--true-cfg-scale"),
        ({"guidance_rescale": 0.5}, "--guidance-rescale"),
        ({"height": 8}, "--height"),
        ({"frames": 8}, "--num-frames"),
        ({"outputs_per_prompt": 2}, "--num-outputs-per-prompt"),
        ({"diffusers_kwargs": {"sigmas": [1.0]}}, "sigmas.*--diffusers-kwargs"),
    ],
    ids=str,
)
def test_a_flag_the_pipeline_cannot_take_is_named(asked, flag):
    """With the pipeline's class and what it accepts."""
    with pytest.raises(
        UsageError, match=f"PlainPipeline takes no {flag}.* It accepts: num_inference_steps, prompt"
    ):
        arguments(PlainPipeline(), **asked)


def test_an_image_pipeline_takes_one_frame_for_granted():
    """SGLang passes num_frames 1 to image models."""
    assert "num_frames" not in arguments(DistilledPipeline(), frames=1)
    assert arguments(PlainPipeline(), outputs_per_prompt=1) == {"prompt": "a cat"}


def test_what_is_required_and_missing_is_named():
    """An image-to-video pipeline without an image."""
    with pytest.raises(UsageError, match=r"VideoPipeline needs image.*--image-path"):
        arguments(VideoPipeline())


def test_images_are_read_and_videos_get_their_rate(tmp_path):
    """One image alone, several as a list; fps where it conditions the model."""
    from PIL import Image

    path = tmp_path / "red.png"
    Image.new("RGBA", (4, 4), "red").save(path)
    one = arguments(VideoPipeline(), image_paths=(str(path),), fps=12, frames=9)
    two = arguments(VideoPipeline(), image_paths=(str(path),) * 2)

    assert one["image"].mode == "RGB"
    assert (one["frame_rate"], one["num_frames"]) == (12, 9)
    assert len(two["image"]) == 2
    assert "frame_rate" not in two
    assert "fps" not in arguments(DistilledPipeline(), fps=12)


def test_an_unreadable_image_is_a_usage_error(tmp_path):
    """Missing, or no image at all."""
    (tmp_path / "text.png").write_text("no picture")
    for name, words in (("none.png", "no image at"), ("text.png", "cannot be read as an image")):
        with pytest.raises(UsageError, match=words):
            arguments(VideoPipeline(), image_paths=(str(tmp_path / name),))


@pytest.mark.parametrize("name", ["steps", "height", "width", "frames", "fps", "outputs_per_prompt"])
def test_counts_below_one_are_refused(name):
    """With the flag as it is typed."""
    with pytest.raises(UsageError, match=r"^--[a-z-]+ 0: it has to be 1 or more"):
        arguments(DistilledPipeline(), **{name: 0})


def test_diffusers_kwargs_win():
    """The last word."""
    made = arguments(
        DistilledPipeline(), steps=3, diffusers_kwargs={"num_inference_steps": 5, "output_type": "pt"}
    )

    assert (made["num_inference_steps"], made["output_type"]) == (5, "pt")


def test_every_call_has_fresh_generators():
    """One an output, seeded upwards, the same again next time."""
    asked = GenerationRequest(prompt="a cat", seed=7, outputs_per_prompt=2)
    first, again = (call_arguments(DistilledPipeline(), asked)["generator"] for _ in range(2))
    alone = call_arguments(DistilledPipeline(), GenerationRequest(prompt="a cat", seed=8))["generator"]

    assert [generator.initial_seed() for generator in first] == [7, 8]
    assert torch.equal(torch.randn(4, generator=first[1]), torch.randn(4, generator=alone))
    assert torch.equal(torch.randn(4, generator=first[0]), torch.randn(4, generator=again[0]))


def test_the_generators_device_can_be_chosen():
    """And has to exist."""
    with pytest.raises(UsageError, match="--generator-device"):
        call_arguments(DistilledPipeline(), GenerationRequest(prompt="a cat", generator_device="cuda:99"))


@pytest.fixture(scope="module")
def qwen() -> Loaded:
    """The embedded default."""
    loaded = load(LoadRequest(device="cpu"))
    loaded.pipeline.set_progress_bar_config(disable=True)
    return loaded


def test_the_workload_is_described_as_it_runs(qwen):
    """Effective values: what was passed, else the pipeline's defaults."""
    asked = GenerationRequest(prompt="a cat", seed=3, diffusers_kwargs={"max_sequence_length": 77})
    workload = describe(qwen, asked, call_arguments(qwen.pipeline, asked, qwen.defaults))

    assert workload.model == "tiny/qwen-image"
    assert workload.pipeline_class == "QwenImagePipeline"
    assert workload.load_format == "dummy"
    assert (workload.steps, workload.height, workload.width, workload.frames) == (12, 64, 64, None)
    assert workload.guidance == {"true_cfg_scale": 4.0}
    assert workload.negative_prompt == " "
    assert workload.seed == 3
    assert workload.dtype == "float32"
    assert workload.arguments == {"output_type": "np", "max_sequence_length": "77"}
    assert workload.components["transformer"] == "QwenImageTransformer2DModel"


def test_guidance_doubles_the_forwards(qwen):
    """CFG is real: two denoiser calls a step by default, one at scale 1."""
    counted = []
    handle = qwen.pipeline.transformer.register_forward_pre_hook(lambda *_: counted.append(1))
    for scale, expected in ((None, 4), (1.0, 2)):
        counted.clear()
        asked = GenerationRequest(prompt="a cat", steps=2, guidance_scale=scale)
        qwen.pipeline(**call_arguments(qwen.pipeline, asked, qwen.defaults))
        assert len(counted) == expected
    handle.remove()


def test_nan_reaches_the_record(qwen):
    """One step under a terminal shift is 0/0 in diffusers: the model's real behaviour, told, not hidden."""
    asked = GenerationRequest(prompt="a cat", steps=1)
    (media,) = media_of(qwen.pipeline(**call_arguments(qwen.pipeline, asked, qwen.defaults)))

    assert not media.finite


@pytest.mark.parametrize("model", TINY)
def test_every_output_can_be_made_again_alone(model):
    """With two outputs the second is what seed + 1 gives alone, to rounding."""
    loaded = load(LoadRequest(model=model, device="cpu"))
    loaded.pipeline.set_progress_bar_config(disable=True)

    def run(**asked):
        request = GenerationRequest(prompt="a cat", steps=2, **asked)
        return media_of(loaded.pipeline(**call_arguments(loaded.pipeline, request, loaded.defaults)))

    both, alone = run(outputs_per_prompt=2, seed=5), run(seed=6)
    assert len(both) == 2
    difference = abs(both[1].data.astype(int) - alone[0].data.astype(int))
    assert difference.max() <= 2
