"""SGLang's HTTP server on this machine, with whatever stands in front of it, and requests to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STEPSCOPE = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from stepscope.cli import main
sys.exit(main())
"""
STAND_INS = HERE / "stand_ins"


@dataclass
class Server:
    """A server in a process group of its own."""

    process: subprocess.Popen
    port: int

    def wait_until_ready(self, timeout_s: float = 300) -> None:
        """A first request, asked for until it is answered."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self.process.poll() is None:
            if self.answered("warm up"):
                return
            time.sleep(1)
        sys.exit("the server did not come up")

    def answered(self, prompt: str, steps: int = 2) -> bool:
        """Whether a request was answered with a picture."""
        try:
            with urllib.request.urlopen(self._asked(prompt, steps), timeout=120) as answer:
                return bool(json.load(answer)["data"])
        except (OSError, ValueError, KeyError):  # urllib's errors are OSErrors; the others: no picture in it
            return False

    def hang_up(self, prompt: str, steps: int, after_s: float) -> None:
        """Send a request and close the connection without waiting for the answer."""
        asked = self._asked(prompt, steps)
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            head = f"POST {asked.selector} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(asked.data)}\r\n\r\n".encode() + asked.data)
            time.sleep(after_s)

    def stop(self) -> None:
        """End it in an orderly way, and what is left of its group."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(180)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _asked(self, prompt: str, steps: int) -> urllib.request.Request:
        body = {
            "prompt": prompt,
            "size": "64x64",
            "num_inference_steps": steps,
            "response_format": "b64_json",
            "n": 1,
        }
        return urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/images/generations",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )


def start(before: Sequence[str | Path], engines: Path, log: Path, **variables: str) -> Server:
    """``sglang serve`` with the tiniest model behind the words of ``before``; only its own paths are set."""
    port = free_port()
    command = [
        *(*before, engines / "env" / "bin" / "sglang", "serve"),
        *("--model-path", engines / "models" / "tiny" / "Qwen-Image", "--model-id", "Qwen-Image"),
        *("--backend", "sglang", "--host", "127.0.0.1", "--port", port),
    ]
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS / "sglang_cpu"), "OMP_NUM_THREADS": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            env={**environment, **variables},
            cwd=log.parent,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Server(process, port)


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


def stepscope(*arguments: str | Path) -> list[str]:
    """The command line of stepscope as it stands in this checkout."""
    return [sys.executable, "-c", STEPSCOPE, *map(str, arguments)]
