"""The HTML page in a real Chromium: opened from its file, sorted, filtered and read with the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile_report import hostile
from reports import EVERY, normal
from stepscope.render.report.report_html import render_html

selenium = pytest.importorskip("selenium")
browser = pytest.importorskip("browser")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (browser.CHROMIUM and browser.DRIVER), reason="no chromium and chromedriver on this machine"
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser.chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {}
    for name, make in {**EVERY, "hostile": hostile}.items():
        paths[name] = folder / f"{name} page.html"
        paths[name].write_text(render_html(make()), encoding="utf-8")
    return paths


def column(driver: Any, table: str, at: int) -> list[str]:
    """Visible texts of one column."""
    rows = driver.find_elements(By.CSS_SELECTOR, f"#{table} tbody tr")
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[at].text for row in rows if row.is_displayed()]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", [*EVERY, "hostile"])
def test_every_page_opens_without_an_error_or_a_request(
    driver: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    """Nothing on the console, no address but the file itself, nothing wider than the window."""
    browser.show(driver, pages[name], width=width)
    assert driver.get_log("browser") == []
    assert {
        address for address in browser.requests(driver) if not address.startswith(("file:///", "data:,"))
    } == set()
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script("return document.scripts.length") == 1
    assert driver.find_elements(By.CSS_SELECTOR, "img, iframe, object, [onload], [onerror]") == []


def test_a_number_column_sorts_both_ways(driver: Any, pages: dict[str, Path]) -> None:
    """Largest first, then smallest; the head says which, and the change is announced."""
    browser.show(driver, pages["normal"])
    head = driver.find_elements(By.CSS_SELECTOR, "#rank0-kernels thead th")[5]
    button = head.find_element(By.TAG_NAME, "button")
    assert button.text.startswith("mean")
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(driver, "rank0-kernels", 5) == ["602.5", "254.2", "10.0", "9.79"]
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(driver, "rank0-kernels", 5) == ["9.79", "10.0", "254.2", "602.5"]
    live = driver.find_element(By.ID, "live").get_attribute("textContent")
    assert live == "Kernels: sorted by mean µs, ascending"
    assert len(driver.find_elements(By.CSS_SELECTOR, "#rank0-kernels [aria-sort]")) == 1


def test_unknown_values_sort_last_in_both_directions(driver: Any, pages: dict[str, Path]) -> None:
    """What was not measured is never the smallest."""
    browser.show(driver, pages["normal"])
    heads = driver.find_elements(By.CSS_SELECTOR, "#run0-run_stages thead button")
    at = [head.text.strip() for head in heads].index("inferred ms")
    for _ in range(2):
        heads[at].click()
        assert column(driver, "run0-run_stages", at)[0] == "1.50"
        assert set(column(driver, "run0-run_stages", at)[1:]) == {"–"}


def test_the_filter_finds_whole_names_and_says_how_many(driver: Any, pages: dict[str, Path]) -> None:
    """Words in any order, in what is folded away too; emptied, everything is back."""
    browser.show(driver, pages["video"])
    field = driver.find_element(By.CSS_SELECTOR, "#run0-run_steps input")
    output = driver.find_element(By.CSS_SELECTOR, "#run0-run_steps output")
    assert len(column(driver, "run0-run_steps", 0)) == 20
    field.send_keys("compilations TRANSFORMER_2")
    assert column(driver, "run0-run_steps", 0) == ["13"]
    assert output.text == "1 of 40 rows"
    field.clear()
    field.send_keys(Keys.SPACE, Keys.BACKSPACE)
    assert len(column(driver, "run0-run_steps", 0)) == 20
    driver.find_element(By.CSS_SELECTOR, "#run0-run_steps .all").click()
    assert len(column(driver, "run0-run_steps", 0)) == 40


def test_kernels_filter_by_category(driver: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    """The category's rows and no others, and sorting keeps the filter."""
    rank = normal().ranks[0]
    path = tmp_path / "many.html"
    from dataclasses import replace

    many = replace(rank, kernels=rank.kernels * 2)
    path.write_text(render_html(replace(normal(), ranks=(many,))), encoding="utf-8")
    browser.show(driver, path)
    choice = driver.find_element(By.CSS_SELECTOR, "#rank0-kernels select")
    choice.send_keys("elementwise")
    assert column(driver, "rank0-kernels", 1) == ["elementwise"] * 4
    driver.find_elements(By.CSS_SELECTOR, "#rank0-kernels thead button")[2].click()
    assert column(driver, "rank0-kernels", 1) == ["elementwise"] * 4


def test_everything_works_from_the_keyboard(driver: Any, pages: dict[str, Path]) -> None:
    """Skip link first; heads, charts and folded details answer keys; focus is visible."""
    browser.show(driver, pages["normal"])
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    active = driver.switch_to.active_element
    assert active.text == "Skip to the answer"
    active.send_keys(Keys.ENTER)
    assert driver.execute_script("return document.activeElement.id") == "answer"

    button = driver.find_element(By.CSS_SELECTOR, "#rank0-categories thead th.number button")
    button.send_keys(Keys.ENTER)
    assert driver.find_element(By.CSS_SELECTOR, "#rank0-categories [aria-sort]").text.startswith("ms")
    outline = driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"

    summary = driver.find_element(By.CSS_SELECTOR, "#rank0-kernels summary")
    summary.send_keys(Keys.ENTER)
    assert "ncu --kernel-name" in driver.find_element(By.CSS_SELECTOR, "#rank0-kernels .more").text


def test_a_chart_is_read_with_the_arrow_keys(driver: Any, pages: dict[str, Path]) -> None:
    """A slider over its readings, with the reading as the value's text and on the page."""
    browser.show(driver, pages["video"])
    plot = driver.find_element(By.CSS_SELECTOR, "#run0-bars .plot")
    assert plot.get_attribute("role") == "slider"
    plot.send_keys(Keys.PAGE_UP, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    expected = "step 13: 9,240.0 ms, transformer_2 runs for the first time: 38 compilations"
    assert plot.get_attribute("aria-valuetext") == expected
    assert driver.find_element(By.CSS_SELECTOR, "#run0-bars .reading").text == expected
    plot.send_keys(Keys.END)
    assert plot.get_attribute("aria-valuenow") == plot.get_attribute("aria-valuemax") == "39"
    plot.send_keys(Keys.HOME)
    assert plot.get_attribute("aria-valuenow") == "0"


def background(driver: Any) -> str:
    return str(driver.execute_script("return getComputedStyle(document.documentElement).backgroundColor"))


def test_dark_and_light_follow_the_system_and_the_button(driver: Any, pages: dict[str, Path]) -> None:
    """Automatic follows the system; the button goes through light and dark; the page remembers."""
    light, dark = "rgb(255, 255, 255)", "rgb(20, 23, 28)"
    browser.show(driver, pages["normal"], dark=True)
    assert background(driver) == dark
    button = driver.find_element(By.ID, "theme")
    button.click()
    assert (button.text, background(driver)) == ("Colours: light", light)
    browser.show(driver, pages["normal"], dark=False)
    button = driver.find_element(By.ID, "theme")
    button.click()
    assert (button.text, background(driver)) == ("Colours: dark", dark)
    button.click()
    assert (button.text, background(driver)) == ("Colours: automatic", light)


def test_the_answer_is_on_the_first_screen(driver: Any, pages: dict[str, Path]) -> None:
    """Verdict, sentences and the first finding end above the fold of a laptop."""
    browser.show(driver, pages["normal"], height=800)
    for selector in ("#verdict", ".lines", "#first-finding"):
        box = driver.find_element(By.CSS_SELECTOR, selector).rect
        assert box["y"] + box["height"] < 800, selector


def test_it_prints(driver: Any, pages: dict[str, Path]) -> None:
    """Printing unfolds every row and leaves out what only a screen can use."""
    browser.show(driver, pages["video"])
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 10_000
    assert driver.execute_script("return document.querySelectorAll('#run0-run_steps tr[hidden]').length") == 0


def test_without_script_everything_is_still_there(driver: Any, pages: dict[str, Path]) -> None:
    """All rows, no dead controls."""
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.show(driver, pages["video"])
        rows = driver.find_elements(By.CSS_SELECTOR, "#run0-run_steps tbody tr")
        assert len([row for row in rows if row.is_displayed()]) == 40
        controls = driver.find_elements(By.CSS_SELECTOR, "button, input, select")
        assert not [control for control in controls if control.is_displayed()]
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
