"""A gate as JSON, and the schema that it keeps."""

from __future__ import annotations

from typing import Any

from stepscope.analyse.comparison.gate_results import GATE_SCHEMA_VERSION, GateReport
from stepscope.render.json_text import json_schema, json_text


def render_gate_json(report: GateReport) -> str:
    """The gate as JSON with the names of ``gate_schema``, ending in a line feed."""
    return json_text(report)


def gate_schema() -> dict[str, Any]:
    """The JSON Schema of ``render_gate_json``'s output, made from the types themselves."""
    return json_schema(GateReport, f"stepscope gate, schema version {GATE_SCHEMA_VERSION}")
