"""The engines there are adapters for."""

from __future__ import annotations

from stepscope.capture.engines import sglang
from stepscope.capture.engines.hooks import Adapter

ADAPTERS: tuple[Adapter, ...] = (sglang.ADAPTER,)
