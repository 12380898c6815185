"""The Markdown report: folded tables, and nothing from a trace that acts as markup."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from hostile_report import HOSTILE, hostile
from reports import EVERY, normal
from stepscope.render.report.report_markdown import code, prose, render_markdown


@pytest.mark.parametrize("name", EVERY)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    """What people see is what was looked at."""
    golden(f"{name}.md", render_markdown(EVERY[name]()))


@pytest.mark.parametrize("make", [*EVERY.values(), hostile])
def test_every_table_row_has_as_many_cells_as_its_head(make: Callable) -> None:
    """No pipe from a trace ends a cell early."""
    cells = 0
    for line in render_markdown(make()).splitlines():
        found = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (cells and found) or found == cells, line
        cells = found


def test_details_are_folded_and_closed() -> None:
    """As many details end as begin."""
    text = render_markdown(normal())
    assert text.count("<details>") == text.count("</details>") > 5


def test_nothing_hostile_stays_active() -> None:
    """Outside code there is no tag of theirs, no mention, no link, no cross-reference."""
    text = render_markdown(hostile())
    outside_code = re.sub(r"(`+)(?:(?!\1).)*\1|^    .*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"<(?!/?details>|/?summary>|!-- -->)", outside_code)
    assert "@everyone" not in outside_code
    assert not re.search(r"(?<!\\)\]\(", outside_code)
    assert not re.search(r"(?:^|\s)#1\b", outside_code)
    assert max(map(len, text.splitlines())) < 15_000


@pytest.mark.parametrize("text", HOSTILE)
def test_code_spans_hold_any_text(text: str) -> None:
    """A fence is longer than any run of backticks inside, and nothing gives nothing."""
    span = code(text)
    if not text.strip():
        assert span == ""
        return
    fence = re.match(r"`+", span)
    assert fence is not None
    assert fence[0] not in span[len(fence[0]) : -len(fence[0])]


def test_prose_reads_the_same() -> None:
    """Escapes are for the renderer, not for the reader."""
    assert prose("a_b * c <d> & e|f") == r"a\_b \* c &lt;d&gt; &amp; e\|f"
