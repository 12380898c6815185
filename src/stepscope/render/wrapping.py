"""Commands broken over lines so that they can still be pasted."""

from __future__ import annotations

import shlex


def wrap_command(command: str, width: int) -> str:
    """``command`` in lines of at most ``width``, broken between words with a backslash.

    A single word longer than that stays whole, and a command that no shell could read stays as it is.
    """
    try:
        words = [shlex.quote(word) for word in shlex.split(command)]
    except ValueError:
        return command
    lines, current = [], ""
    for word in words:
        if current and len(current) + len(word) + 3 > width:
            lines.append(f"{current} \\")
            current = f"    {word}"
        else:
            current = f"{current} {word}" if current else word
    return "\n".join([*lines, current])
