"""A parsed HTML page, for the tests of its structure."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "input", "rect", "line", "path", "br"}


class Page(HTMLParser):
    """Every start tag with its attributes and the tags around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.unbalanced: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.unbalanced += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs), tuple(self._open)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs), tuple(self._open)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(tag)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.tags if name == tag]


def own_markup(page: str) -> str:
    """The page without style, script and their hashes."""
    bare = re.sub(r"(<style>|<script>).*?(</style>|</script>)", r"\1\2", page, flags=re.DOTALL)
    return re.sub(r"sha256-[\w+/=]+", "sha256-", bare)
