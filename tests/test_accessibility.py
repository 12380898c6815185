"""The HTML page's structure: what a keyboard and a screen reader need, checked without a browser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from itertools import pairwise

import pytest

from hostile_report import hostile
from html_page import Page
from reports import EVERY
from stepscope.analyse.results import Report
from stepscope.render.report.report_html import render_html


@pytest.fixture(scope="module", params=[*EVERY, "hostile"])
def page(request: pytest.FixtureRequest) -> Page:
    make: Callable[[], Report] = EVERY.get(request.param, hostile)
    return Page(render_html(make()))


def test_tags_are_balanced_and_ids_unique(page: Page) -> None:
    """No text from a trace opens or closes a tag."""
    assert page.unbalanced == []
    ids = Counter(attributes["id"] for _, attributes, _ in page.tags if "id" in attributes)
    assert [name for name, times in ids.items() if times > 1] == []


def test_every_reference_has_its_target(page: Page) -> None:
    """Links inside the page and labels by id lead somewhere."""
    ids = {attributes.get("id") for _, attributes, _ in page.tags}
    for _, attributes, _ in page.tags:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert set((attributes.get(name) or "").split()) <= ids
        href = attributes.get("href") or ""
        assert not href.startswith("#") or href[1:] in ids


def test_landmarks_language_title_and_skip_link(page: Page) -> None:
    """The page says its language and title, has its landmarks, and the first link skips to the answer."""
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("title")) == len(page.all("main")) == len(page.all("h1")) == 1
    assert page.all("nav")[0]["aria-label"]
    assert page.all("a")[0]["href"] == "#answer"


def test_headings_never_skip_a_level(page: Page) -> None:
    """h1, then h2, then h3."""
    levels = [int(tag[1]) for tag, _, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_tables_have_captions_and_scoped_heads(page: Page) -> None:
    """Each table names itself; each head says what it heads; its scroller can be focused and has a name."""
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(attributes.get("scope") in {"col", "row"} for attributes in page.all("th"))
    scrollers = [attributes for attributes in page.all("div") if attributes.get("class") == "scroll"]
    assert all(one["tabindex"] == "0" and one["role"] == "region" for one in scrollers)


def test_drawings_have_words(page: Page) -> None:
    """A chart is one image with a sentence; the drawings inside are hidden from screen readers."""
    plots = [attributes for attributes in page.all("div") if attributes.get("class") == "plot"]
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in plots)
    for tag, attributes, around in page.tags:
        if tag == "svg" and "svg" not in around:
            assert attributes.get("aria-hidden") == "true"


def test_every_control_has_a_label(page: Page) -> None:
    """Inputs stand inside their labels."""
    for tag, _, around in page.tags:
        if tag in {"input", "select"}:
            assert "label" in around


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, two: str) -> float:
    """WCAG 2.2, success criterion 1.4.3."""
    light, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("block", [r":root \{", r':root\[data-theme="dark"\] \{', r":root:not\(.*?\) \{"])
def test_colours_have_enough_contrast(block: str) -> None:
    """Text at least 4.5 to 1 and drawings 3 to 1, in light and dark."""
    css = files("stepscope.render").joinpath("templates/report.css").read_text(encoding="utf-8")
    found = re.search(block + r"(.*?)\}", css, flags=re.DOTALL)
    assert found is not None
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", found[1]))
    for text, behind in (
        ("text", "page"), ("text", "card"), ("quiet", "page"), ("quiet", "card"), ("link", "page"),
        ("link", "card"), ("odd", "card"), ("good", "good-page"), ("bad", "bad-page"), ("bad", "page"),
    ):  # fmt: skip
        assert _contrast(colours[text], colours[behind]) >= 4.5, (text, behind)
    for drawing in ("bar", "strong", "odd", "area", "focus"):
        assert _contrast(colours[drawing], colours["page"]) >= 3, drawing


def test_automatic_dark_and_chosen_dark_are_the_same() -> None:
    """The two dark palettes, which CSS cannot share, do not drift apart."""
    css = files("stepscope.render").joinpath("templates/report.css").read_text(encoding="utf-8")
    chosen, automatic = (
        re.findall(r"--[\w-]+: #\w{6}", part)
        for part in re.findall(r"color-scheme: dark;(.*?)\}", css, re.DOTALL)
    )
    assert chosen == automatic
