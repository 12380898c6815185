"""The architectures that can be built without a download, by their hub id, and a small twin of each."""

from __future__ import annotations

from types import MappingProxyType

from stepscope.workload.presets import (
    flux,
    hunyuan_video,
    ltx_video,
    qwen_image,
    stable_diffusion_3,
    stable_diffusion_xl,
    wan,
    z_image,
)
from stepscope.workload.presets.spec import Preset

FAMILIES = (
    qwen_image,
    flux,
    stable_diffusion_3,
    stable_diffusion_xl,
    wan,
    z_image,
    hunyuan_video,
    ltx_video,
)
PRESETS = MappingProxyType({preset.id: preset for family in FAMILIES for preset in family.PRESETS})
"""Every preset by id; ids are as on the hub, small twins begin with ``tiny/``."""

DEFAULT_MODEL = "tiny/qwen-image"
"""What runs when no model is named: the embedded default."""


def find_preset(model: str) -> Preset | None:
    """The preset with this id, whatever the case of its letters, or None."""
    wanted = model.lower()
    return next((preset for name, preset in PRESETS.items() if name.lower() == wanted), None)
