"""Results as JSON text, and the schema of a result type."""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.model.encodable import encodable

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_text(result: object) -> str:
    """A result as indented JSON with the names of its fields, ending in a line feed."""
    try:
        encoded = msgspec.json.encode(result)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(encodable(msgspec.to_builtins(result)))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def json_schema(kind: type, title: str) -> dict[str, Any]:
    """The JSON Schema of what ``json_text`` gives for a ``kind``, made from the type itself."""
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(kind)}
