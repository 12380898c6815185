"""A comparison as JSON, and the schema that it keeps."""

from __future__ import annotations

from typing import Any

from stepscope.analyse.comparison.compare_results import COMPARE_SCHEMA_VERSION, CompareReport
from stepscope.render.json_text import json_schema, json_text


def render_compare_json(report: CompareReport) -> str:
    """The comparison as JSON with the names of ``compare_schema``, ending in a line feed."""
    return json_text(report)


def compare_schema() -> dict[str, Any]:
    """The JSON Schema of ``render_compare_json``'s output, made from the types themselves."""
    return json_schema(CompareReport, f"stepscope comparison, schema version {COMPARE_SCHEMA_VERSION}")
