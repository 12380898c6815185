"""Call arguments from their descriptions: pictures, tensors, generators, made anew for every run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image


def make_arguments(description: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of one call; the same values each time, in new objects."""
    random = np.random.default_rng(0)
    return {name: make_value(value, random) for name, value in description.items()}


def make_value(value: Any, random: np.random.Generator) -> Any:
    """One value: ``{"$image": [width, height]}``, ``{"$tensor": shape}``, ...; everything else is itself."""
    if isinstance(value, list):
        return [make_value(item, random) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind = next((key for key in value if key.startswith("$")), "")
    if not kind:
        return {key: make_value(item, random) for key, item in value.items()}
    return _MAKERS[kind](value, random)


def _image(value: Mapping[str, Any], random: np.random.Generator) -> Image.Image:
    width, height = value["$image"]
    mode = value.get("mode", "RGB")
    if mode == "L":  # a mask: its right half is to be painted
        pixels = np.zeros((height, width), np.uint8)
        pixels[:, width // 2 :] = 255
        return Image.fromarray(pixels)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8)).convert(mode)


def _array(value: Mapping[str, Any], random: np.random.Generator, shape: list[int]) -> Any:
    low, high = value.get("range", (0.0, 1.0))
    dtype = value.get("dtype", "float32")
    if dtype == "bool" or "int" in dtype:
        return random.integers(int(low), int(high) + 1, shape).astype(dtype)
    return (low + (high - low) * random.random(shape)).astype(
        dtype if dtype.startswith("float") else "float32"
    )


def _tensor(value: Mapping[str, Any], random: np.random.Generator) -> torch.Tensor:
    dtype = getattr(torch, value.get("dtype", "float32"))
    if value.get("values") is not None:
        return torch.tensor(value["values"], dtype=dtype).reshape(value["$tensor"])
    plain = {**value, "dtype": "float32"} if dtype.is_floating_point or dtype.is_complex else value
    return torch.as_tensor(_array(plain, random, value["$tensor"])).to(dtype)


def _repeated(value: Mapping[str, Any], random: np.random.Generator) -> list[Any]:
    count, item = value["$list"]
    return [make_value(item, random) for _ in range(count)]


def _dataclass(value: Mapping[str, Any], random: np.random.Generator) -> Any:
    made = getattr(importlib.import_module(value["module"]), value["$dataclass"])
    return made(**{name: make_value(field, random) for name, field in value["fields"].items()})


_MAKERS = {
    "$image": _image,
    "$array": lambda value, random: _array(value, random, value["$array"]),
    "$tensor": _tensor,
    "$generator": lambda value, _random: torch.Generator("cpu").manual_seed(value["$generator"]),
    "$dtype": lambda value, _random: getattr(torch, value["$dtype"]),
    "$list": _repeated,
    "$dataclass": _dataclass,
}
