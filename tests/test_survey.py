"""The survey of diffusers: its tables, its builder, and a varied sample of classes observed for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from stepscope.capture.wrapping import installed_count
from survey.arguments import make_arguments
from survey.build import build_pipeline, pipeline_classes
from survey.components import NoConfigurationError, build
from survey.coverage_table import table
from survey.measure import Gap, Row, as_json, measure
from survey.runner import read_rows
from survey.tables import component_entries, pipeline_entries

SAMPLE: dict[str, tuple[tuple[int, ...], set[int]]] = {
    # class: steps of each denoising stage, and how many forwards a step has
    "DDPMPipeline": ((4,), {1}),  # no text, no autoencoder
    "StableDiffusionControlNetPipeline": ((4,), {1}),
    "StableDiffusionXLImg2ImgPipeline": ((3,), {1}),  # strength shortens
    "StableDiffusionInpaintPipeline": ((5,), {1}),  # PNDM adds one
    "WanPipeline": ((4,), {2}),  # guidance in two forwards; video
    "LTX2Pipeline": ((4,), {1}),  # audio and video, a copied scheduler
    "StableAudio3Pipeline": ((4,), {1}),
    "ShapEPipeline": ((7,), {1}),  # 3D; Heun steps twice in each but the last
    "MarigoldDepthPipeline": ((4,), {1}),
    "KandinskyV22CombinedPipeline": ((4, 4), {1}),  # prior and decoder
    "UnCLIPPipeline": ((4, 4, 4), {1}),  # prior, decoder and super-resolution
    "StableDiffusionControlNetXSPipeline": ((4,), {1}),  # a UNet with its ControlNet built in
    "LLaDA2Pipeline": ((11,), {1}),  # text, in blocks
    "ScoreSdeVePipeline": ((4,), {2}),  # a corrector before each predictor
    "WanModularPipeline": ((4,), {2}),  # of blocks
    "LEditsPPPipelineStableDiffusion": ((4,), {1}),  # a loop of its own after an inversion
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", list(SAMPLE))
def test_a_class_is_observed_to_the_bit(name: str) -> None:
    """It runs, its steps are all seen, it gives the same bits as unobserved, nothing is left installed."""
    steps, forwards = SAMPLE[name]

    row = measure(name, repeated_ms=0)

    assert (row.status, row.reason) == ("ran", "")
    assert row.steps_seen == steps
    assert sum(steps) in (sum(row.scheduler_steps), *row.scheduler_steps)  # counted without stepscope
    assert set(row.forwards) == forwards
    assert row.repeats
    assert row.identical
    assert "DenoisingStage" in row.stages
    assert installed_count() == 0


def test_every_class_of_the_table_is_one_of_diffusers_or_was() -> None:
    """An entry under a wrong name would never be surveyed."""
    known = set(pipeline_classes())

    assert sorted(set(pipeline_entries()) - known) == []
    assert len(pipeline_entries()) >= 200


def test_every_component_that_is_referred_to_is_in_the_table() -> None:
    """Class and variant exist; all that is not a class is a tokenizer, a processor or a stand-in."""
    entries = component_entries()
    missing = []
    for name, pipeline in pipeline_entries().items():
        for reference in pipeline.components.values():
            for item in reference if isinstance(reference, list) else [reference]:
                if isinstance(item, str) and ":" not in item:
                    class_name, _, variant = item.partition("#")
                    if class_name not in entries or int(variant or 0) >= len(entries[class_name].variants):
                        missing.append((name, item))
    assert missing == []


def test_an_unknown_class_is_named() -> None:
    """A class of a new release is a row with a reason, not an exception."""
    row = measure("NoSuchPipeline")

    assert (row.status, row.reason) == ("not_built", "the tables have no entry for it")
    with pytest.raises(NoConfigurationError, match="NoSuchModel"):
        build("NoSuchModel", "transformer")


def test_arguments_are_made_anew_with_the_same_values() -> None:
    """Each run gets its own generator and tensors, all alike."""
    description = {
        "generator": {"$generator": 3},
        "image": {"$image": [8, 4]},
        "mask_image": {"$image": [8, 4], "mode": "L"},
        "video": {"$list": [2, {"$tensor": [1, 2], "range": [-1, 1]}]},
        "steps": 2,
    }
    first, second = make_arguments(description), make_arguments(description)

    assert first["generator"] is not second["generator"]
    assert first["image"].tobytes() == second["image"].tobytes()
    assert first["image"].size == (8, 4)
    assert set(first["mask_image"].tobytes()) == {0, 255}
    assert torch.equal(first["video"][1], second["video"][1])
    assert first["steps"] == 2


def test_a_pipeline_can_be_called_as_often_as_wanted() -> None:
    """``ready`` makes new arguments for every call."""
    tiny = build_pipeline("DDIMPipeline")

    pictures = [tiny.ready()().images for _ in range(2)]

    assert (pictures[0] == pictures[1]).all()
    assert tiny.steps == (4,)


def test_results_that_were_cut_off_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    """A survey that was stopped in the middle of a line goes on from the line before."""
    path = tmp_path / "rows.jsonl"
    whole = json.dumps(as_json(Row(name="A", status="ran")))
    path.write_text(f'{whole}\n{{"name": "B", "sta')

    assert list(read_rows(path)) == ["A"]
    assert read_rows(tmp_path / "none.jsonl") == {}


def test_the_table(golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What people read: sums, the classes that ran, the others with a reason that cannot break the table."""
    monkeypatch.setattr("survey.coverage_table.version", lambda package: "1.2.3")
    monkeypatch.setattr("survey.coverage_table.platform.machine", lambda: "x86_64")
    rows = [
        Row(
            name="APipeline",
            status="ran",
            stages=("TextEncodingStage", "DenoisingStage"),
            steps_asked=(4,),
            steps_seen=(3,),
            scheduler_steps=(3,),
            schedulers=("AScheduler",),
            strength=0.8,
            forwards=(2,),
            coverage=0.961,
            repeats=True,
            identical=True,
        ),
        Row(name="BPipeline", status="ran", stages=(), coverage=0.5, repeats=False),
        Row(
            name="BModularPipeline",
            status="ran",
            stages=("DenoisingStage",),
            steps_asked=(4,),
            steps_seen=(5,),
            scheduler_steps=(5,),
            schedulers=("PNDMScheduler",),
            forwards=(1,),
            coverage=0.9,
            observed_ms=12.0,
            repeats=True,
            identical=False,
            gaps=(Gap(after="scheduler.step", before="vae.decode", share=0.06),),
        ),
        Row(name="CPipeline", status="failed", reason="ValueError: a | b <c>"),
        Row(name="DPipeline", status="not_built", reason="the tables have no entry for it"),
    ]

    golden("diffusers_coverage.md", table([as_json(row) for row in rows]))


def test_an_upsampler_of_latents_prepares_latents() -> None:
    """It takes no prompt: what enlarges latents before they are decoded is no text encoder."""
    row = measure("LTXLatentUpsamplePipeline", repeated_ms=0)

    assert (row.status, row.reason) == ("ran", "")
    assert "TextEncodingStage" not in row.stages
    assert row.steps_seen == ()
