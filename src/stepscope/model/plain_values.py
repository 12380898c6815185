"""Values of other people's objects as a record's fields can hold them: a reader of typed JSON takes no other.

None stands for everything that is not what the field says: a list of seeds, a size that is no number.
"""

from __future__ import annotations

import math
from typing import Any

_MOST_BITS = 63


def whole(value: Any) -> int | None:
    """A finite number as an integer of 64 bits."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = int(value)
    return number if number.bit_length() <= _MOST_BITS else None


def figure(value: Any) -> float | None:
    """A finite number as a float."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def figures(owner: Any, names: tuple[str, ...]) -> dict[str, float]:
    """Those of an object's attributes that are finite numbers."""
    found = {name: figure(getattr(owner, name, None)) for name in names}
    return {name: number for name, number in found.items() if number is not None}


def text(value: Any) -> str | None:
    """A text, or several as one."""
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return "; ".join(value)
    return str(value) if isinstance(value, str) else None
