"""Perf dumps as tests need them: SGLang's shape, ours, and the published ones that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "dumps"


def sglang_json(
    steps_ms: Sequence[float],
    *,
    encode_ms: float = 200.0,
    decode_ms: float = 80.0,
    denoise_ms: float | None = None,
    total_ms: float | None = None,
) -> dict[str, Any]:
    """A dump as SGLang writes it; by default its stages and steps agree."""
    denoise = sum(steps_ms) if denoise_ms is None else denoise_ms
    stages = {"TextEncodingStage": encode_ms, "DenoisingStage": denoise, "DecodingStage": decode_ms}
    return {
        "timestamp": "2025-12-20T16:45:15.602292+00:00",
        "request_id": "mocked_fake_id_for_offline_generate",
        "commit_hash": "N/A",
        "tag": "cli_generate",
        "total_duration_ms": sum(stages.values()) if total_ms is None else total_ms,
        "steps": [{"name": name, "duration_ms": ms} for name, ms in stages.items()],
        "denoise_steps_ms": [{"step": index, "duration_ms": ms} for index, ms in enumerate(steps_ms)],
        "memory_checkpoints": {},
        "meta": {"prompt": "a logo", "model": "Qwen/Qwen-Image"},
    }


def stepscope_json(steps_ms: Sequence[float], **changes: Any) -> dict[str, Any]:
    """A dump of ours: device events, environment, workload, one 48 GiB peak."""
    sizes = {
        key: changes.pop(key)
        for key in ("encode_ms", "decode_ms", "denoise_ms", "total_ms")
        if key in changes
    }
    document = sglang_json(steps_ms, **sizes)
    names = [(stage["name"], stage["duration_ms"]) for stage in document["steps"]]
    document |= {
        "schema_version": 1,
        "request_id": "r1",
        "clock": "device_events",
        "stages": [
            {"name": name, "stage_index": index, "duration_ms": ms} for index, (name, ms) in enumerate(names)
        ],
        "denoise_steps_ms": [_step_json(index, ms) for index, ms in enumerate(steps_ms)],
        "environment": {
            "device_kind": "cuda",
            "device_name": "NVIDIA H200",
            "driver": "580.1",
            "packages": {"torch": "2.11.0"},
        },
        "workload": {
            "model": "Qwen/Qwen-Image",
            "steps": len(steps_ms),
            "height": 1024,
            "width": 1024,
            "dtype": "bfloat16",
            "offload": "none",
            "compile": "none",
        },
        "memory_checkpoints": {
            "after_DenoisingStage": {
                "allocated_mb": 40000,
                "reserved_mb": 50000,
                "peak_allocated_mb": 49152,
                "peak_reserved_mb": 50000,
            }
        },
        "trust": {"ok": True, "reasons": []},
    }
    return document | changes


def _step_json(index: int, ms: float) -> dict[str, Any]:
    forwards = [{"component": "transformer", "duration_ms": ms}]
    return {"step": index, "duration_ms": ms, "stage_index": 1, "forwards": forwards}
