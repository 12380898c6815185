"""What a pipeline returned, whatever library made it: pictures, videos, sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Media:
    """One result.

    ``data`` is by kind: image, uint8 (height, width, 3); video, uint8 (frames, height, width, 3);
    audio, float32 (samples, channels) from -1 to 1; other, whatever came back, such as latents.
    """

    kind: str  # image | video | audio | other
    data: NDArray[Any]
    finite: bool = True  # False: there was NaN or infinity, shown as black
    rate: float | None = None  # frames or samples a second
