"""A gate as JSON, and the schema that it keeps."""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.analyse.gate_results import GATE_SCHEMA_VERSION, GateReport

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_gate_json(report: GateReport) -> str:
    """The gate as JSON with the names of ``gate_schema``, ending in a line feed."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def gate_schema() -> dict[str, Any]:
    """The JSON Schema of ``render_gate_json``'s output, made from the types themselves."""
    title = f"stepscope gate, schema version {GATE_SCHEMA_VERSION}"
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(GateReport)}
