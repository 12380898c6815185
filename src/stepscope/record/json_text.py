"""JSON of what was recorded, whatever text a prompt or a file name held."""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.model.encodable import encodable


def encoded(value: Any) -> bytes:
    """``value`` as JSON; text that is no UTF-8 is written with escapes, because a record must not be lost."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(msgspec.to_builtins(value)))
