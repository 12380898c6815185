"""Which process of a distributed program this is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any


def rank_here(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """``(rank, world size)``: torch.distributed's where it is initialised, else torchrun's, else (0, 1)."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    try:
        return int(environ.get("RANK", "0")), int(environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1
