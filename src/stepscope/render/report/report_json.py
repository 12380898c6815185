"""The report as JSON, and the schema that it keeps."""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.analyse.results import REPORT_SCHEMA_VERSION, Report
from stepscope.render.names import visible

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_json(report: Report) -> bytes:
    """The report as UTF-8 JSON with the names of ``report_schema``, ending in a line feed."""
    try:
        text = msgspec.json.encode(report)
    except UnicodeEncodeError:  # a path or name with bytes that are no UTF-8
        text = msgspec.json.encode(_encodable(msgspec.to_builtins(report)))
    return msgspec.json.format(text, indent=2) + b"\n"


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value) if not value.isascii() else value
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def report_schema() -> dict[str, Any]:
    """The JSON Schema of ``render_json``'s output, made from the types themselves."""
    schema = msgspec.json.schema(Report)
    title = f"stepscope report, schema version {REPORT_SCHEMA_VERSION}"
    return {"$schema": _DIALECT, "title": title, **schema}
