"""The known word that somebody meant: by its parts where they are shared, else by its letters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

LIKE_ENOUGH = 0.6
"""difflib's own limit: below it, words have little more than single letters in common."""

NEAR = 0.75
"""Words that share no part have to be as like as this."""


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known words most like ``word``, the best first; none where none is like it.

    Words that hold every part of it come first: ``num_steps`` is ``num_inference_steps``, ``tiny/sdxl``
    is ``tiny/stable-diffusion-xl``, though others share more of its letters.
    """
    names = sorted(known)
    parts = _parts(word)
    holding = [name for name in names if parts and _holds(_parts(name), parts)]
    closest = difflib.get_close_matches(word.lower(), [name.lower() for name in names], most, LIKE_ENOUGH)
    likely = [name for close in closest for name in names if name.lower() == close and _means(word, name)]
    holding.sort(key=lambda name: (len(_parts(name)), -_likeness(word, name)))
    spelt = [name for name in likely if _likeness(word, name) >= 0.85]  # a slip of the hand
    return spelt[:most] or list(dict.fromkeys([*holding, *likely]))[:most]


def _likeness(word: str, name: str) -> float:
    return difflib.SequenceMatcher(None, word.lower(), name.lower()).ratio()


def _means(word: str, name: str) -> bool:
    """Whether letters in common are more than chance: nearly all of them, or one of several parts whole.

    ``--data-type`` is not ``--dtype``.
    """
    return bool({*_parts(word)} & {*_parts(name)}) or _likeness(word.strip("-"), name.strip("-")) >= NEAR


def _parts(word: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", word.lower()) if part]


def _holds(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the wanted parts are found in this order, each a part's beginning or initials of several."""
    if not wanted:
        return True
    return any(
        _holds(parts[end:], wanted[1:])
        for start in range(len(parts))
        for end in _ends(parts, start, wanted[0])
    )


def _ends(parts: Sequence[str], start: int, text: str) -> list[int]:
    """After which parts ``text`` is used up, if each part from ``start`` gives some of its beginning."""
    if not text:
        return [start]
    if start == len(parts):
        return []
    shared = 0
    while shared < min(len(text), len(parts[start])) and text[shared] == parts[start][shared]:
        shared += 1
    return [end for taken in range(shared, 0, -1) for end in _ends(parts, start + 1, text[taken:])]
