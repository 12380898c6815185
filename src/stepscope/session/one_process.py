"""Flags of SGLang that ask for more than this command has, and the values of them that are what it has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from stepscope.model.errors import UsageError

ONE_PROCESS = "it needs several processes; this command runs one."
CACHES = "step caches are not applied here; attach to a pipeline that has one."

ONLY_ONE: Mapping[str, str] = MappingProxyType(
    {
        "num_gpus": "work on several GPUs",
        "tp_size": "tensor parallelism",
        "sp_degree": "sequence parallelism",
        "ulysses_degree": "Ulysses sequence parallelism",
        "ring_degree": "ring attention",
        "dp_size": "data parallelism",
        "dp_degree": "data parallelism",
    }
)
"""What takes 1, and what more than that would be."""

ONLY_FALSE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "enable_cfg_parallel": ("CFG parallelism", ONE_PROCESS),
        "use_fsdp_inference": ("FSDP", ONE_PROCESS),
        "enable_teacache": ("TeaCache", CACHES),
    }
)
"""What takes false, what true would be, and why that is not here."""


def refuse_what_is_not_here(flags: Mapping[str, Any]) -> None:
    """Let pass what runs anyway: one process without a cache.

    Raises:
        UsageError: anything else, with the name of what is missing.

    """
    for name, what in ONLY_ONE.items():
        if flags.get(name, 1) != 1:
            said = f"{_flag(name)} {flags[name]} is not in this version: {what}: {ONE_PROCESS}"
            raise UsageError(said, remedy="Give 1 or leave it out.")
    for name, (what, why) in ONLY_FALSE.items():
        if flags.get(name, False):
            raise UsageError(f"{_flag(name)} is not in this version: {what}: {why}", remedy="Leave it out.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
