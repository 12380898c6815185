"""Short names of files that tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath


def told_apart(paths: Sequence[PurePath]) -> tuple[str, ...]:
    """Of each path its last parts, as few as no other of them ends with: ``a/perf.json``, ``b/perf.json``."""
    different = list(dict.fromkeys(paths))
    names = {path: _shortest(path, [other for other in different if other != path]) for path in different}
    return tuple(names[path] for path in paths)


def runs_told_apart(paths: Sequence[PurePath]) -> tuple[str, ...]:
    """As ``told_apart``, with a number where one file holds several runs (a performance.log)."""
    names, several, seen = told_apart(paths), Counter(paths), Counter[PurePath]()
    numbered = []
    for path, name in zip(paths, names, strict=True):
        seen[path] += 1
        numbered.append(f"{name} (run {seen[path]})" if several[path] > 1 else name)
    return tuple(numbered)


def _shortest(path: PurePath, others: Sequence[PurePath]) -> str:
    for depth in range(1, len(path.parts)):
        ending = path.parts[-depth:]
        if all(other.parts[-depth:] != ending for other in others):
            return str(PurePath(*ending))
    return str(path)
