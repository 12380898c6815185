"""What stands around the events of a Kineto trace: clock base, devices, rank, versions.

Kept keys are a closed list: a recorder's user can add any metadata, and none of that is ours to copy.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from stepscope.model.trace import Device
from stepscope.record.reader_warnings import WarningLog

KEPT_KEYS = (
    "schemaVersion", "trace_id", "host_name", "displayTimeUnit", "baseTimeNanoseconds", "with_stack",
    "record_shapes", "with_flops", "with_modules", "profile_memory", "cupti_version", "cuda_runtime_version",
    "cuda_driver_version", "roctracer_version", "rocprofiler_version", "hip_runtime_version",
    "hip_driver_version", "distributedInfo", "stepscope",
)  # fmt: skip
_NUMBERS = re.compile(r'"(baseTimeNanoseconds|schemaVersion|rank|world_size)"\s*:\s*(-?\d{1,19})\b')
_STRAY_COMMA = re.compile(r",(\s*[}\]])")


@dataclass(frozen=True, slots=True, kw_only=True)
class KinetoHeader:
    """The metadata of one trace file."""

    kept: dict[str, Any] = field(default_factory=dict)  # of KEPT_KEYS
    devices: tuple[Device, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    base_unix_ns: int | None = None


def parse_header(header: bytes, tail: bytes, log: WarningLog) -> KinetoHeader:
    """Read the text before and after the events; what does not parse is noted and searched for numbers."""
    document = _parse_object(_closed(header), log) | _parse_object(_opened(tail), log)
    distributed = document.get("distributedInfo")
    ours = document.get("stepscope")
    ranks = next((d for d in (distributed, ours, document) if isinstance(d, dict) and "rank" in d), {})
    return KinetoHeader(
        kept={key: document[key] for key in KEPT_KEYS if key in document},
        devices=_devices(document.get("deviceProperties")),
        rank=_int(ranks.get("rank")),
        world_size=_int(ranks.get("world_size")),
        base_unix_ns=_int(document.get("baseTimeNanoseconds")),
    )


def _closed(header: bytes) -> str:
    text = header.decode(errors="replace").lstrip("\ufeff").strip().rstrip(",")
    return text + "}" if text else ""


def _opened(tail: bytes) -> str:
    text = tail.decode(errors="replace").strip().lstrip(",")
    return "{" + text if text.strip(" \t\r\n}") else ""


def _parse_object(text: str, log: WarningLog) -> dict[str, Any]:
    if not text:
        return {}
    for candidate in (text, _STRAY_COMMA.sub(r"\1", text)):
        try:
            found = json.loads(candidate, strict=False, object_pairs_hook=lambda pairs: _object(pairs, log))
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else {}
    log.add(
        "malformed_header", "the metadata around the events is not valid JSON; only its numbers were read"
    )
    return {key: int(number) for key, number in _NUMBERS.findall(text)}


def _object(pairs: list[tuple[str, Any]], log: WarningLog) -> dict[str, Any]:
    document = dict(pairs)
    repeated = len(pairs) - len(document)
    log.add("duplicate_key", "a key occurs twice in the metadata; its last value counts", repeated)
    return document


def _devices(properties: object) -> tuple[Device, ...]:
    entries = properties if isinstance(properties, list) else []
    return tuple(
        _device(entry) for entry in entries if isinstance(entry, dict) and _int(entry.get("id")) is not None
    )


def _device(entry: dict[str, Any]) -> Device:
    major, minor = _int(entry.get("computeMajor")), _int(entry.get("computeMinor"))
    return Device(
        id=_int(entry.get("id")) or 0,
        name=str(entry.get("name", "")),
        total_memory_bytes=_int(entry.get("totalGlobalMem")),
        multiprocessors=_int(entry.get("numSms")),
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        registers_per_multiprocessor=_int(entry.get("regsPerMultiprocessor")),
        shared_bytes_per_multiprocessor=_int(entry.get("sharedMemPerMultiprocessor")),
        threads_per_multiprocessor=_int(entry.get("maxThreadsPerMultiprocessor")),
    )


def _int(value: object) -> int | None:
    """An int64 from the metadata; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < 2**63 else None
