"""Stand-ins for components that only exist as downloads: they do what their interface says and no more."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import ModelMixin
from diffusers.configuration_utils import ConfigMixin, register_to_config


class SafetyChecker(ModelMixin, ConfigMixin):
    """Finds every text and video safe, as ``cosmos_guardrail`` does with harmless ones."""

    @register_to_config
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def check_text_safety(self, _prompt: str) -> bool:
        return True

    def check_video_safety(self, video: Any) -> Any:
        return video


STAND_INS = {"CosmosSafetyChecker": SafetyChecker}
