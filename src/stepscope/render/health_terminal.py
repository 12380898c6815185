"""The checks of ``stepscope doctor`` as lines on a terminal."""

from __future__ import annotations

import textwrap

from stepscope.model.health import Check

_TITLE_CELLS = 15
_SIGN_CELLS = 9
_ARROW = "-> "


def render_check(check: Check, width: int) -> str:
    """One check: its name, how it went, what was seen, how to get what is missing; ends in a line feed."""
    indent = " " * (_TITLE_CELLS + _SIGN_CELLS)
    lines = _wrapped(check.text, width - len(indent))
    if check.remedy:
        remedy = _wrapped(check.remedy, width - len(indent) - len(_ARROW))
        lines += [(_ARROW if at == 0 else " " * len(_ARROW)) + line for at, line in enumerate(remedy)]
    first = f"{check.title:<{_TITLE_CELLS}}{check.state.value:<{_SIGN_CELLS}}{lines[0]}"
    return "\n".join([first.rstrip(), *(f"{indent}{line}" for line in lines[1:])]) + "\n"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, width), break_on_hyphens=False, break_long_words=False) or [""]
