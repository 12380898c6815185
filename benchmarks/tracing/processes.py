"""Processes that answer lines of JSON, their other end, and the core that they take turns on."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class Process:
    """A worker in a process of its own."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] = {}) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )

    def answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended: {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def tell(self, do: str, **options: Any) -> None:
        self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
        self._process.stdin.flush()

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        self.tell(do, **options)
        return self.answer()

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()


def quietest_core() -> int:
    """The core that counts fastest just now: neighbours of a shared host have been seen to halve others."""
    cores = sorted(os.sched_getaffinity(0))
    speeds = {}
    for core in cores:
        with on_core(core):
            speeds[core] = min(_counting_s() for _ in range(5))
    return min(speeds, key=speeds.__getitem__)


def _counting_s() -> float:
    begin = time.perf_counter()
    for _ in range(100_000):
        pass
    return time.perf_counter() - begin


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Keep this thread, not the process's others, on one core: processes that take turns share its speed."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
