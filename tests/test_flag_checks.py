"""Flags from Python meet the checks of the command line; what was mistyped is named."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.cli import main
from stepscope.cli.generate_flags import add_flags
from stepscope.cli.values import positive
from stepscope.model.errors import UsageError
from stepscope.model.nearest import nearest
from stepscope.session.flag_checks import CHOICES, POSITIVE
from stepscope.session.generate_flags import options_of
from stepscope.workload.presets import PRESETS


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"sed": 0}, "no flag sed.*Did you mean seed"),
        ({"num_steps": 2}, "no flag num_steps.*num_inference_steps"),
        ({"xyzzy": 2}, "no flag xyzzy.*generate --help"),
        ({"seed": "x"}, "seed is 'x', not a whole number"),
        ({"seed": 1.5}, "not a whole number"),
        ({"height": True}, "not a whole number"),
        ({"guidance_scale": "7"}, "not a number"),
        ({"profile": "yes"}, "not True or False"),
        ({"prompt": 3}, "not text or a list of text"),
        ({"prompt": ["a", 3]}, "not text or a list of text"),
        ({"run_dir": 3}, "not text or a path"),
        ({"diffusers_kwargs": "{}"}, "not a mapping"),
        ({"height": 0}, "--height is 0"),
        ({"load_format": "dumy"}, "--load-format is 'dumy'.*dummy"),
        ({"compile": "all"}, "none, regional, whole"),
    ],
    ids=str,
)
def test_a_wrong_flag_in_python_is_a_usage_error(flags: dict[str, Any], words: str) -> None:
    """Never ignored, never a TypeError from inside."""
    with pytest.raises(UsageError, match=words):
        stepscope.generate(**{"prompt": "x", **flags})


def test_what_python_callers_have_at_hand_is_taken() -> None:
    """numpy's numbers, paths, tuples, and None for what is not given."""
    options = options_of(
        {"prompt": ("a", "b"), "seed": np.int64(3), "guidance_scale": 4, "run_dir": Path("r"), "height": None}  # type: ignore[typeddict-item]
    )
    assert [request.seed for request in options.requests] == [3, 3]
    assert options.requests[0].height is None


def test_the_command_line_and_python_have_the_same_limits() -> None:
    """What argparse knows of ranges and choices, the checks know too."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    known = {action.dest: action for action in parser._actions}
    assert {name for name, action in known.items() if action.type is positive} == POSITIVE
    choices = {name: tuple(action.choices or ()) for name, action in known.items() if name in CHOICES}
    assert choices == {name: tuple(values) for name, values in CHOICES.items()}


@pytest.mark.parametrize(
    ("word", "best"),
    [
        ("tiny/sdxl", "tiny/stable-diffusion-xl"),
        ("tiny/wan", "tiny/wan2.1-t2v-1.3b"),
        ("tiny/flux", "tiny/flux.1-dev"),
        ("tiny/sd3", "tiny/stable-diffusion-3.5-large"),
        ("tiny/qwen-imag", "tiny/qwen-image"),
    ],
)
def test_the_preset_that_was_meant_is_suggested(word: str, best: str) -> None:
    """By its parts and initials, not by the letters that it happens to share."""
    assert best in nearest(word, PRESETS, most=3)
    assert not nearest("zebra", PRESETS)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("--data-kind", []),
        ("--heigth", ["--height"]),
        ("--output-dir", ["--output-path"]),
        ("--infrence-step", ["--num-inference-steps"]),
    ],
)
def test_only_near_names_are_suggested(word: str, near: list[str]) -> None:
    """Letters in common by chance are none: a flag for another thing would be set instead."""
    known = ["--dtype", "--height", "--output-path", "--num-inference-steps", "--tp-size"]
    assert nearest(word, known) == near
    assert nearest("--data-type", known) == []


def test_the_nearest_flag_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    """--num-steps is not --num-gpus."""
    assert main(["generate", "--prompt", "x", "--num-steps", "3"]) == 2
    assert "Did you mean --num-inference-steps?" in capsys.readouterr().err
