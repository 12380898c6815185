"""Text from a trace, made fit to be shown: harmless anywhere, and kernel names short but never ambiguous."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

ELLIPSIS = "…"
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that can move the cursor, reorder or hide text: shown as escapes instead."""
_OPENERS = {"(": ")", "{": "}", "<": ">", "[": "]"}
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+\w*")
_NOISE = frozenset({"array", "char", "int", "unsigned", "const", "TrivialOffsetCalculator", "lambda"})
_LAMBDA = re.compile(r"(?:::operator(?: const)?|::\{lambda[^{}]*\})+")
_NAMESPACE = re.compile(r"\b[A-Za-z_]\w*::")
_NO_NAME = "(no name)"
_LONGEST_PARSED = 20_000  # characters; a longer name is cut before it is looked at


def visible(text: str) -> str:
    """``text`` with every control, bidirectional, zero-width and surrogate character written as an escape.

    Nothing from a trace can then clear a terminal, reorder a line or hide in a report.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible_character(character) for character in text)


def _visible_character(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE_CATEGORIES:
        return character
    if character in "\t\n\r":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` terminal cells, its middle left out where it is longer."""
    if cell_len(text) <= width:
        return text
    tail = max((width - 1) // 3, 0)
    return _first_cells(text, width - 1 - tail) + ELLIPSIS + _last_cells(text, tail)


def shorten_apart(texts: Sequence[str], width: int) -> list[str]:
    """Each text in at most ``width`` cells, its middle left out; two different ones never read the same."""
    return _told_apart(texts, texts, [shorten(text, width) for text in texts], width)


def _first_cells(text: str, cells: int) -> str:
    return set_cell_size(text[: max(cells, 0)], max(cells, 0)).rstrip()


def _last_cells(text: str, cells: int) -> str:
    return _first_cells(text[::-1][: max(cells, 0)], cells)[::-1]


def sentence(text: str, limit: int = 500) -> str:
    """Text of a sentence's length at most: a trace may hold more than anyone wants to read."""
    return shorten(visible(text[: 4 * limit]), limit)


def shorten_path(path: str, width: int) -> str:
    """A path in at most ``width`` cells: its end tells files apart, from a slash on if one is near."""
    text = visible(path)
    if cell_len(text) <= width:
        return text
    kept = _last_cells(text, width - 1)
    slash = kept.find("/")
    return ELLIPSIS + (kept[slash:] if 0 <= slash <= len(kept) // 2 else kept)


def shorten_kernels(names: Sequence[str], width: int) -> list[str]:
    """One text of at most ``width`` cells for each name; different names never give the same text.

    Return type, parameters and namespaces go first. Where template arguments do not fit, those stay that
    tell a name from the others of the same template.
    """
    simplified = [simplify_kernel(name) if name.strip() else _NO_NAME for name in names]
    tokens = _rarity_of_tokens(simplified)
    fitted = [_fit(text, tokens, width) for text in simplified]
    return _told_apart(names, simplified, fitted, width)


def simplify_kernel(name: str) -> str:
    """A kernel's name without return type, parameters, lambdas and namespaces; as it is where unbalanced."""
    text = visible(name[:_LONGEST_PARSED]).removeprefix("void ").replace("(anonymous namespace)::", "")
    bare = _without_parameters(text)
    if bare is None:
        return text
    bare = _LAMBDA.sub("", bare)
    bare = _NAMESPACE.sub("", bare).replace("BFloat16", "bf16").replace("__nv_bfloat16", "bf16")
    return re.sub(r"\s+>", ">", bare).strip() or text


def _without_parameters(text: str) -> str | None:
    """``text`` without anything in round brackets; None where brackets do not pair up."""
    kept: list[str] = []
    closers: list[str] = []
    depth = 0  # of round brackets
    previous = ""
    for character in text:
        closing = bool(closers) and character == closers[-1] and not (character == ">" and previous == "-")
        if closing:
            closers.pop()
        if character in _OPENERS:
            closers.append(_OPENERS[character])
        depth += (character == "(") - (closing and character == ")")
        if depth == 0 and character not in "()":
            kept.append(character)
        previous = character
    return None if closers else "".join(kept)


def _base_and_arguments(text: str) -> tuple[str, str]:
    base, bracket, arguments = text.partition("<")
    return (base, arguments) if bracket and base else (text, "")


def _rarity_of_tokens(texts: Iterable[str]) -> dict[str, Counter[str]]:
    """How many of the names that share a base hold each template token."""
    rarity: dict[str, Counter[str]] = {}
    for text in dict.fromkeys(texts):
        base, arguments = _base_and_arguments(text)
        rarity.setdefault(base, Counter()).update(set(_TOKEN.findall(arguments)) | {""})
    return rarity


def _fit(text: str, rarity: dict[str, Counter[str]], width: int) -> str:
    if cell_len(text) <= width:
        return text
    base, arguments = _base_and_arguments(text)
    found = list(dict.fromkeys(token for token in _TOKEN.findall(arguments) if token not in _NOISE))
    if not found:
        return shorten(text, width)
    ranked = sorted(found, key=lambda token: (rarity[base][token], token.isdigit(), len(token) < 4))
    base = shorten(base, max(width - cell_len(ranked[0]) - 2 * len(f"{ELLIPSIS} ") - 2, width // 3))
    room = width - cell_len(base) - 2
    if cell_len(_joined(found, {ranked[0]})) > room:
        return f"{base}<{shorten(ranked[0], room)}>"
    kept: set[str] = set()
    for token in ranked:
        if cell_len(_joined(found, kept | {token})) <= room:
            kept.add(token)
    return f"{base}<{_joined(found, kept)}>"


def _joined(found: Sequence[str], kept: set[str]) -> str:
    """The kept tokens in their order, one ellipsis wherever some were left out."""
    parts: list[str] = []
    for token in found:
        if token in kept:
            parts.append(token)
        elif not parts or parts[-1] != ELLIPSIS:
            parts.append(ELLIPSIS)
    if len(kept) == len(found):  # brackets and repeats were still left out
        parts.append(ELLIPSIS)
    return " ".join(parts)


def _told_apart(
    names: Sequence[str], simplified: Sequence[str], texts: Sequence[str], width: int
) -> list[str]:
    """``texts``, changed wherever two different names would read the same.

    What follows the first difference is shown where that helps, else the later name gets a number.
    """
    owner: dict[str, str] = {}
    chosen: dict[str, str] = {}
    alike: dict[str, str] = {}  # shown text -> the whole text it stands for
    for name, whole, text in zip(names, simplified, texts, strict=True):
        if name in chosen:
            continue
        best = _from_difference(whole, alike[text], width) if text in owner else text
        candidate, ordinal = best, 1
        while owner.setdefault(candidate, name) != name:
            ordinal += 1
            suffix = f" #{ordinal}"
            candidate = shorten(best, width - len(suffix)) + suffix
        alike.setdefault(candidate, whole)
        chosen[name] = candidate
    return [chosen[name] for name in names]


def _from_difference(text: str, other: str, width: int) -> str:
    """``text`` with its beginning left out up to a little before where it first differs from ``other``."""
    pairs = enumerate(zip(text, other, strict=False))
    same = next((at for at, (one, two) in pairs if one != two), min(len(text), len(other)))
    head = width // 4
    start = same - width // 4
    return shorten(text if start <= head else text[:head] + ELLIPSIS + text[start:], width)
