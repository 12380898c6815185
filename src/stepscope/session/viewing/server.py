"""Serves one trace to one page on the loopback interface, and nothing else to nobody else.

A file on 127.0.0.1 can be asked for by every page that the user's browser shows, and by every user of the
machine. So the path cannot be guessed, the Host must be ours (a foreign name that resolves to 127.0.0.1 is
refused), the Origin must be the viewer's, and the trace is given once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 1 << 20
_TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".wasm": "application/wasm",  # browsers compile no other type
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What is served: a trace for pages of ``origin``, and the files of a viewer beside it.

    ``origin`` None: the viewer is served here too, so its requests come from this very server.
    """

    trace: Path
    origin: str | None
    viewer: Mapping[str, Path] = field(default_factory=dict)  # by path, as /index.html
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def trace_path(self) -> str:
        """Where the trace is served."""
        return f"/{self.token}/{quote(self.trace.name)}"


class ViewServer(ThreadingHTTPServer):
    """Listens on loopback only. ``served`` is set once the trace has been given whole."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, offer: Offer, port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.offer = offer
        self.served = threading.Event()
        self.last_request_s = time.monotonic()
        self._lock = threading.Lock()
        self._given = False

    @property
    def address(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://{LOOPBACK}:{self.server_port}"

    def take(self) -> bool:
        """Whether the trace may be given now: only one request gets it."""
        with self._lock:
            if self._given:
                return False
            self._given = True
            return True

    def put_back(self) -> None:
        """The page went away before it had all of it: it may ask again."""
        with self._lock:
            self._given = False


class _Handler(BaseHTTPRequestHandler):
    """GET and OPTIONS of the trace, GET of the viewer's files."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "stepscope", ""

    def do_GET(self) -> None:
        self.server.last_request_s = time.monotonic()
        path = urlsplit(self.path).path
        offer = self.server.offer
        if not self._is_for_us():
            self._refuse(HTTPStatus.FORBIDDEN)
        elif secrets.compare_digest(path.encode(), offer.trace_path.encode()):
            self._give_trace()
        elif path in offer.viewer and self._is_same_origin():
            self._give_file(offer.viewer[path])
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def do_OPTIONS(self) -> None:
        """Browsers ask first whether a page from the network may fetch from loopback."""
        if (
            not self._is_for_us()
            or not self._is_viewer()
            or urlsplit(self.path).path != self.server.offer.trace_path
        ):
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow_viewer()
        self.send_header("Access-Control-Allow-Methods", "GET")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Say nothing: the command line tells what happened."""

    def _is_for_us(self) -> bool:
        port = self.server.server_port
        return self.headers.get_all("Host") in ([f"{LOOPBACK}:{port}"], [f"localhost:{port}"])

    def _is_viewer(self) -> bool:
        origin = self.server.offer.origin
        return self._is_same_origin() if origin is None else self.headers.get_all("Origin") == [origin]

    def _is_same_origin(self) -> bool:
        """A page of ours, or the address typed in: browsers send no Origin then."""
        here = {self.server.address, f"http://localhost:{self.server.server_port}"}
        origins = self.headers.get_all("Origin") or []
        site = self.headers.get("Sec-Fetch-Site", "none")
        return set(origins) <= here and site in {"none", "same-origin"}

    def _give_trace(self) -> None:
        if not self._is_viewer():
            self._refuse(HTTPStatus.FORBIDDEN)
        elif not self.server.take():
            self._refuse(HTTPStatus.GONE)
        else:
            try:
                self._give_file(self.server.offer.trace)
            except OSError:  # the page closed the connection, or the file went away
                self.server.put_back()
                self.close_connection = True
                return
            self.server.served.set()

    def _give_file(self, path: Path) -> None:
        with path.open("rb") as file:
            size = path.stat().st_size
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", _TYPES.get(path.suffix, "application/octet-stream"))
            self.send_header("Content-Length", str(size))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self._allow_viewer()
            self.end_headers()
            while chunk := file.read(_CHUNK_BYTES):
                self.wfile.write(chunk)

    def _allow_viewer(self) -> None:
        if self.server.offer.origin is not None:
            self.send_header("Access-Control-Allow-Origin", self.server.offer.origin)
            self.send_header("Vary", "Origin")

    def _refuse(self, status: HTTPStatus) -> None:
        """No word about what would have been right."""
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
