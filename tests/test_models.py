"""The list of presets: every one, with its twin, as the command prints it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from stepscope.cli import main
from stepscope.session.models import preset_infos
from stepscope.workload.presets import PRESETS


def test_every_preset_is_listed_with_its_twin(
    capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    """Nothing is built for the list."""
    assert main(["models"]) == 0
    said = capsys.readouterr().out
    golden("models.txt", said)
    assert all(name in said for name in PRESETS)


def test_the_list_for_scripts() -> None:
    """One entry a full-size preset; twins are not counted unless asked."""
    infos = preset_infos()
    assert {info.twin for info in infos} == {name for name in PRESETS if name.startswith("tiny/")}
    assert all(info.twin_parameters is None for info in infos)


@pytest.mark.slow
def test_counting_builds_each_component_without_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """A twin is some thousand times smaller than its model, which has all its components counted."""
    assert main(["models", "--count", "--format", "json"]) == 0
    listed = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    flux = listed["black-forest-labs/FLUX.1-dev"]
    assert 16e9 < flux["parameters"] < 18e9  # 11.9 of the transformer, 4.8 of T5, CLIP and the VAE
    assert 0 < flux["twin_parameters"] < flux["parameters"] / 1000
