"""A size that the pipeline rounds is not passed off as the one asked for."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.model.media import Media
from stepscope.session.keep import other_sizes
from stepscope.workload.arguments import GenerationRequest


@pytest.mark.parametrize(
    ("kind", "shape", "said"),
    [
        ("image", (64, 64, 3), ("the pipeline rounded: height 65 was asked for, 64 made",)),
        ("image", (65, 64, 3), ()),
        ("video", (5, 65, 64, 3), ("the pipeline rounded: frames 6 was asked for, 5 made",)),
        ("audio", (100, 2), ()),
    ],
)
def test_what_was_made_is_said_where_it_differs(kind, shape, said) -> None:
    """Height, width and frames, once for all outputs; what was not asked for is nobody's surprise."""
    request = GenerationRequest(prompt="x", height=65, width=None, frames=6)
    media = Media(kind=kind, data=np.zeros(shape, np.uint8))
    assert other_sizes(request, [media, media]) == said
