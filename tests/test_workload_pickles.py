"""Weights in pickles: read as weights only, never run."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

import pipelines
from stepscope.model.errors import RunFailedError
from stepscope.workload.load import load
from stepscope.workload.request import (
    LoadRequest,
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """Nothing here may reach for the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


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
