"""A real Chromium under a script, for the tests of the HTML page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
)


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A headless browser that logs its console and its network, and ends with the block."""
    options = Options()
    options.binary_location = CHROMIUM or ""
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def show(
    driver: webdriver.Chrome, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False
) -> None:
    """Open a page from its file at a width, in a colour scheme, with empty logs."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    motion = {
        "name": "prefers-reduced-motion",
        "value": "reduce",
    }  # clicks would miss a page that still moves
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, motion]})
    driver.get("about:blank")
    driver.get_log("browser")
    driver.get_log("performance")
    driver.get(path.as_uri())


def requests(driver: webdriver.Chrome) -> list[str]:
    """Every address that the page asked for."""
    events: list[dict[str, Any]] = [
        json.loads(entry["message"])["message"] for entry in driver.get_log("performance")
    ]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent]
