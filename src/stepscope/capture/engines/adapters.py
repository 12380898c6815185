"""The engines there are adapters for, and where each is: an adapter is loaded by who imports its engine."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.capture.engines.hooks import Adapter

ADAPTERS: Mapping[str, str] = {
    "sglang.multimodal_gen": "stepscope.capture.engines.sglang",
    "vllm_omni": "stepscope.capture.engines.vllm_omni",
}
"""The package that every module of an engine lies in, and the module with its ``ADAPTER``."""


def adapter_of(package: str) -> Adapter:
    """Load the adapter of the engine whose package this is."""
    adapter: Adapter = importlib.import_module(ADAPTERS[package]).ADAPTER
    return adapter
