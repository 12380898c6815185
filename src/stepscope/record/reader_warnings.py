"""Collects what a reader skipped, mended or missed, one entry per kind."""

from __future__ import annotations

from stepscope.model.trace import ReaderWarning


class WarningLog:
    """Counts remarks by kind; the text of the first one of a kind is kept."""

    def __init__(self) -> None:
        self._text: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def add(self, kind: str, text: str, count: int = 1) -> None:
        """Note ``count`` occurrences; none is no remark."""
        if count > 0:
            self._text.setdefault(kind, text)
            self._count[kind] = self._count.get(kind, 0) + count

    def warnings(self) -> tuple[ReaderWarning, ...]:
        """One warning per kind, in the order first seen."""
        return tuple(ReaderWarning(kind=k, text=t, count=self._count[k]) for k, t in self._text.items())
