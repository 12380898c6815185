"""The pages of compare, bench and sweep in a real Chromium: nothing loaded, nothing wider than the window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dumps import stepscope_json
from stepscope.analyse.comparison.bench_results import BENCH_SCHEMA_VERSION, BenchReport, BenchRun
from stepscope.analyse.comparison.cohort import observe
from stepscope.analyse.comparison.scaling import sweep_report
from stepscope.analyse.run.summarise import summarise
from stepscope.model.sweep import SweepPoint, SweepRow
from stepscope.record.perf_dump_reader import perf_dump_from_json
from stepscope.render.comparison.bench_views import render_bench_html
from stepscope.render.comparison.compare_html import render_compare_html
from stepscope.render.comparison.sweep_views import render_sweep_html
from stepscope.session.compare import LoadedRun, LoadedSide, compare_files, compare_sides

selenium = pytest.importorskip("selenium")
browser = pytest.importorskip("browser")

from selenium.webdriver.common.by import By  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (browser.CHROMIUM and browser.DRIVER), reason="no chromium and chromedriver on this machine"
)
BAD = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e" + "x" * 300
TRACES = Path(__file__).parent / "data" / "traces"
PAGES = ("repeated", "hostile", "traces", "bench", "sweep")


def side(label: str, step_ms: float, *, stage: str = "TextEncodingStage", runs: int = 3) -> LoadedSide:
    loaded = []
    for at in range(runs):
        document = stepscope_json([step_ms + at] * 8)
        document["stages"][0]["name"] = document["steps"][0]["name"] = stage
        document["workload"]["dtype"] = stage
        summary = summarise(perf_dump_from_json(document, origin=label), path=f"{label}-{at}.json")
        loaded.append(LoadedRun(observation=observe(summary)))
    return LoadedSide(label=label, runs=tuple(loaded))


def sweep_rows() -> list[SweepRow]:
    return [
        SweepRow(
            id=f"{size}{steps}", point=SweepPoint(width=size, height=256, steps=steps, variant=variant),
            status="ok" if size < 1024 else "out_of_memory", error="" if size < 1024 else BAD, width=size,
            height=256, steps=steps, total_ms=1.5 * steps * size, step_ms=1.5 * size, first_use_ms=12.0,
            stages_ms={"DenoisingStage": 1.4 * steps * size, BAD[:40]: 0.1 * steps * size},
        )
        for size in (128, 256, 512, 1024)
        for steps in (4, 8)
        for variant in ("", BAD[:80])
    ]  # fmt: skip


def written() -> dict[str, str]:
    compared = compare_sides(side("base", 350.0), [side("new", 300.0)])
    runs = tuple(BenchRun(order=at, variant="base", total_ms=10.0 + at, path="x") for at in range(6))
    benched = BenchReport(
        schema_version=BENCH_SCHEMA_VERSION, comparison=compared, runs=runs, drift=None, notes=()
    )
    hostile = compare_sides(side("base", 350.0), [side(BAD, 300.0, stage=BAD), side("c", 350.0)])
    trace = TRACES / "qwen_image_4layer_all_stages_stack_memory.trace.json.gz"
    other = TRACES / "ulysses2-global-rank0.trace.json.gz"
    return {
        "repeated": render_compare_html(compared),
        "hostile": render_compare_html(hostile),
        "traces": render_compare_html(compare_files([trace], [[other]], anyway=True)),
        "bench": render_bench_html(benched),
        "sweep": render_sweep_html(sweep_report(sweep_rows(), missing=1)),
    }


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser.chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name} page.html" for name in PAGES}
    for name, text in written().items():
        paths[name].write_text(text, encoding="utf-8")
    return paths


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_without_an_error_or_a_request(
    driver: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    """Nothing on the console, no address but the file itself, nothing wider than the window, no script."""
    browser.show(driver, pages[name], width=width)
    assert driver.get_log("browser") == []
    addresses = browser.requests(driver)
    assert [one for one in addresses if not one.startswith(("file:///", "data:,"))] == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script("return document.scripts.length") == 0
    assert driver.find_elements(By.CSS_SELECTOR, "img, iframe, object, [onload], [onerror], [style]") == []
    policy = driver.find_element(By.CSS_SELECTOR, "meta[http-equiv=Content-Security-Policy]")
    assert policy.get_attribute("content").startswith("default-src 'none'; style-src 'sha256-")
    assert driver.title.startswith("stepscope ")


@pytest.mark.parametrize("name", ["repeated", "bench", "traces"])
def test_the_first_screen_of_a_telephone_has_the_verdict(
    driver: Any, pages: dict[str, Path], name: str
) -> None:
    """The answer, and in the summary a verdict in each row without scrolling sideways."""
    browser.show(driver, pages[name], width=400)
    answer = driver.find_element(By.TAG_NAME, "h2")
    assert answer.text.split()[0] in {"FASTER", "SLOWER", "NO"}
    assert answer.rect["y"] + answer.rect["height"] < 500
    for cell in driver.find_elements(By.CSS_SELECTOR, "#summary-0 td.in-verdict"):
        assert cell.rect["x"] + cell.rect["width"] <= 400


def test_names_are_not_broken_into_letters(driver: Any, pages: dict[str, Path]) -> None:
    """A kernel's name has room for words: a column of single letters made the page a mile long."""
    browser.show(driver, pages["traces"], width=400)
    names = driver.find_elements(By.CSS_SELECTOR, "#kernels-0 td.code")
    assert names
    assert min(cell.rect["width"] for cell in names) > 150
