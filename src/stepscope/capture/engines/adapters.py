"""The engines there are adapters for."""

from __future__ import annotations

from stepscope.capture.engines import sglang, vllm_omni
from stepscope.capture.engines.hooks import Adapter

ADAPTERS: tuple[Adapter, ...] = (sglang.ADAPTER, vllm_omni.ADAPTER)
