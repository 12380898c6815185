"""Saved pictures and videos as pixels, for comparing two runs' outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepscope.model.errors import UnreadableInputError

VIDEO_SUFFIXES = frozenset({".mp4", ".webm", ".mov", ".mkv", ".gif"})
MOST_FRAMES = 256
"""A longer video is compared by its first frames: enough to see that it went wrong, and it fits in memory."""


def read_pixels(path: Path) -> NDArray[np.uint8]:
    """The output as (frames, height, width, 3) bytes; a picture is one frame.

    Raises:
        UnreadableInputError: the file is missing or no picture, or nothing installed can decode it.

    """
    if not path.is_file():
        raise UnreadableInputError(f"{path} does not exist.", remedy="Keep the outputs of both runs.")
    try:
        return _video(path) if path.suffix.lower() in VIDEO_SUFFIXES else _picture(path)
    except ImportError as error:
        raise UnreadableInputError(
            f"{path} cannot be decoded: {error.name} is not installed.",
            remedy='Install it with: pip install "stepscope[run]"',
        ) from error
    except (OSError, ValueError, RuntimeError, SyntaxError) as error:
        raise UnreadableInputError(f"{path} cannot be decoded: {error}.") from error


def _picture(path: Path) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.uint8)[np.newaxis]


def _video(path: Path) -> NDArray[np.uint8]:
    from imageio import v3 as imageio

    frames = []
    for frame in imageio.imiter(path):
        frames.append(np.asarray(frame, dtype=np.uint8)[..., :3])
        if len(frames) == MOST_FRAMES:
            break
    return np.stack(frames)
