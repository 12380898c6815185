"""A comparison as JSON, and the schema that it keeps."""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.analyse.compare_results import COMPARE_SCHEMA_VERSION, CompareReport

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_compare_json(report: CompareReport) -> str:
    """The comparison as JSON with the names of ``compare_schema``, ending in a line feed."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def compare_schema() -> dict[str, Any]:
    """The JSON Schema of ``render_compare_json``'s output, made from the types themselves."""
    title = f"stepscope comparison, schema version {COMPARE_SCHEMA_VERSION}"
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(CompareReport)}
