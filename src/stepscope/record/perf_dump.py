"""Writes the perf dump, the JSON behind ``--perf-dump-path``, and publishes its schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stepscope.model.dump import PerfDump
from stepscope.record.atomic import write_atomic
from stepscope.record.json_text import encoded
from stepscope.record.perf_dump_fields import DESCRIPTIONS

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def encode_dump(dump: PerfDump) -> bytes:
    """The dump as JSON, indented by two as SGLang writes it; a number that is not finite becomes null."""
    return msgspec.json.format(encoded(dump), indent=2) + b"\n"


def write_dump(dump: PerfDump, path: Path) -> Path:
    """Write the dump whole or not at all, parents created, and return its absolute path.

    Raises:
        RunFailedError: the path cannot be written.

    """
    write_atomic(path, encode_dump(dump))
    return path.resolve()


def numbered(path: Path, index: int) -> Path:
    """The path of prompt ``index``: ``perf.json``, ``perf-1.json``, ``perf-2.json``, ..."""
    return path if index == 0 else path.with_name(f"{path.stem}-{index}{path.suffix}")


def dump_schema() -> dict[str, Any]:
    """The JSON Schema of the perf dump, generated from the types, with a description for every key."""
    schema = msgspec.json.schema(PerfDump)
    for name, definition in schema["$defs"].items():
        for key, property_schema in definition["properties"].items():
            property_schema["description"] = DESCRIPTIONS[f"{name}.{key}"]
    return {"$schema": SCHEMA_DIALECT, "title": "stepscope perf dump", **schema}
