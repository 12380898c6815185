"""Text that can be written as UTF-8, whatever a file or a file name held."""

from __future__ import annotations

from typing import Any


def encodable(value: Any) -> Any:
    """``value`` with every lone surrogate in its strings written as an escape, in nested dicts and lists too.

    JSON may hold such surrogates, and file names with bytes that are no UTF-8 give them.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    return [encodable(item) for item in value] if isinstance(value, (list, tuple)) else value
