"""What a browser does at the address of a view: it fetches the trace from the page's origin."""

from __future__ import annotations

import http.client
import socket
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

TRACE = Path(__file__).parent / "data" / "traces" / "qwen_image_full_5_steps_ops.trace.json.gz"
"""What the views of the tests show."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(address: str) -> bool:
    """In the place of ``webbrowser.open``: a thread fetches the trace that the address names."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    url = urlsplit(parse_qs(address.partition("#!/?")[2])["url"][0])

    def fetch() -> None:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        headers = {} if origin.endswith(f":{url.port}") else {"Origin": origin}
        connection.request("GET", url.path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200

    threading.Thread(target=fetch, daemon=True).start()
    return True
