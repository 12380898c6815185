"""From what a pipeline returns to plain arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.model.media import Media

IMAGES = ("images", "image")
VIDEOS = ("frames", "videos", "video")
SOUNDS = ("audios", "audio")
"""Names that diffusers' output classes and modular pipelines give to their results."""

DEFAULT_FPS = 24
"""SGLang's default frame rate of saved videos."""

DEFAULT_SAMPLE_RATE = 44_100


def media_of(result: Any, *, fps: float | None = None, sample_rate: float | None = None) -> tuple[Media, ...]:
    """Return every image, video and sound of a pipeline's result, one ``Media`` an output.

    Takes diffusers' output classes, plain tuples (``return_dict=False``), modular pipelines' results; images
    as PIL, arrays (n, height, width, channels) or tensors (n, channels, height, width); videos likewise with
    frames before that. What is neither (latents) comes back as ``other``.
    """
    found: list[Media] = []
    for name, value in _named(result):
        if value is None:
            continue
        if name in SOUNDS:
            found += [_sound(item, sample_rate or DEFAULT_SAMPLE_RATE) for item in _items(value)]
        elif name in IMAGES or name in VIDEOS:
            found += [_picture(item, fps or DEFAULT_FPS) for item in _items(value)]
    return tuple(found)


def _named(result: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a result that can hold media, by name; an unnamed first part is judged by its shape."""
    known = (*IMAGES, *VIDEOS, *SOUNDS)
    named = [(name, _part(result, name)) for name in known if _part(result, name) is not None]
    if named:
        yield from named
    elif isinstance(result, (list, tuple)) and result and not _is_image(result[0]):
        yield "images", result[0]
    elif result is not None:
        yield "images", result


def _part(result: Any, name: str) -> Any:
    if isinstance(result, dict):
        return result.get(name)
    if isinstance(result, (list, tuple, np.ndarray)):
        return None
    values = getattr(result, "values", None)  # a modular pipeline's state
    if isinstance(values, dict):
        return values.get(name)
    return getattr(result, name, None)


def _is_image(value: Any) -> bool:
    return hasattr(value, "getbands")  # PIL, without importing it


def _items(value: Any) -> Sequence[Any]:
    """One entry an output: a list as it is, a batched array along its first axis."""
    if isinstance(value, (list, tuple)):
        return value
    if _is_image(value):
        return [value]
    array = _array(value)
    return [array] if array.ndim < 3 else list(array)


def _array(value: Any) -> NDArray[Any]:
    """A NumPy array of a tensor (bfloat16 included), a picture or a list of pictures."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return np.asarray(value.float().numpy() if value.is_floating_point() else value.numpy())
    if isinstance(value, (list, tuple)):
        return np.stack([_array(item) for item in value])
    if _is_image(value):
        return np.asarray(value.convert("RGB"))
    return np.asarray(value)


def _picture(item: Any, fps: float) -> Media:
    """An image or a video: channels moved last, one frame alone is an image."""
    array = _array(item)
    finite = bool(np.isfinite(array).all()) if array.dtype.kind == "f" else True
    pixels = _channels_last(array)
    if pixels is None:
        return Media(kind="other", data=array, finite=finite)
    pixels = _bytes(pixels)
    if pixels.ndim == 4 and pixels.shape[0] == 1:
        pixels = pixels[0]
    if pixels.ndim == 3:
        return Media(kind="image", data=pixels, finite=finite)
    return Media(kind="video", data=pixels, finite=finite, rate=fps)


def _channels_last(array: NDArray[Any]) -> NDArray[Any] | None:
    """(..., height, width, 3), or None if this is no picture. Grey is tripled, alpha goes."""
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim not in {3, 4}:
        return None
    if array.shape[-1] not in {1, 3, 4}:
        if array.shape[-3] not in {1, 3, 4}:
            return None
        array = np.moveaxis(array, -3, -1)
    if array.shape[-1] == 1:
        array = np.repeat(array, 3, axis=-1)
    return array[..., :3]


def _bytes(pixels: NDArray[Any]) -> NDArray[Any]:
    """uint8, as diffusers rounds it; NaN is black."""
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    clean = np.nan_to_num(pixels, nan=0.0, posinf=1.0, neginf=0.0)
    return np.ascontiguousarray((np.clip(clean, 0.0, 1.0) * 255).round().astype(np.uint8))


def _sound(item: Any, sample_rate: float) -> Media:
    """(samples, channels): the shorter axis is that of the channels."""
    array = _array(item).astype(np.float32).squeeze()
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        return Media(kind="other", data=array, finite=bool(np.isfinite(array).all()))
    if array.shape[0] < array.shape[1]:
        array = array.T
    finite = bool(np.isfinite(array).all())
    return Media(kind="audio", data=np.nan_to_num(array), finite=finite, rate=sample_rate)
