"""A FastAPI server under load: a record for each request, start and stop while it serves, bounded memory."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pipelines
import programs
import stepscope
from stepscope.capture.wrapping import installed_count

fastapi = pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")


class Served:
    """A server that generates in its pool's threads, with a session switched on and off over HTTP."""

    def __init__(self, pipeline: Any) -> None:
        self.app = fastapi.FastAPI()
        self.session: stepscope.ProfileSession | None = None
        self.finished: list[stepscope.ProfileSession] = []
        self.one_at_a_time = threading.Lock()  # as everybody does it: schedulers keep state

        @self.app.get("/generate")
        def generate(steps: int) -> dict[str, Any]:  # not async: a thread of the pool
            with self.one_at_a_time:
                picture = pipelines.sd(pipeline, steps)
            return {"sum": float(picture.sum())}

        @self.app.post("/start")
        def start() -> dict[str, Any]:
            self.session = stepscope.profile(pipeline, kept_calls=20).start()
            return {}

        @self.app.post("/stop")
        def stop() -> dict[str, Any]:
            assert self.session is not None
            self.session.stop()
            self.finished.append(self.session)
            return {"count": self.session.count}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Served, str]]:
    """The server, running in a thread, and its address."""
    server = Served(pipelines.stable_diffusion())
    config = uvicorn.Config(server.app, host="127.0.0.1", port=0, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    yield server, f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join()


async def load(address: str, steps: list[int]) -> list[float]:
    """Requests from eight clients at once; their answers in order."""
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        gate = asyncio.Semaphore(8)

        async def one(count: int) -> float:
            async with gate:
                answer = await client.get("/generate", params={"steps": count})
                answer.raise_for_status()
                return float(answer.json()["sum"])

        return list(await asyncio.gather(*map(one, steps)))


def test_every_request_between_start_and_stop_is_a_record(served: tuple[Served, str]) -> None:
    """With its own steps; requests before and after are not seen; answers are the same throughout."""
    server, address = served
    steps = [1, 2, 3] * 4
    before = asyncio.run(load(address, steps))
    httpx.post(f"{address}/start").raise_for_status()
    during = asyncio.run(load(address, steps))
    count = httpx.post(f"{address}/stop").json()["count"]
    after = asyncio.run(load(address, steps))
    session = server.finished[-1]

    assert before == during == after
    assert count == session.count == len(steps)
    assert sorted(len(call.steps_ms) for call in session.calls) == sorted(steps)
    assert len({call.run.request_id for call in session.calls}) == len(steps)
    assert [reason for call in session.calls for reason in programs.doubts(call.dump)] == []
    assert session.problems == ()
    assert installed_count() == 0


def test_switching_while_requests_are_on_their_way_loses_and_breaks_none(served: tuple[Served, str]) -> None:
    """Started and stopped again and again under load: every answer right, every record whole."""
    server, address = served
    finished_before = len(server.finished)
    expected = asyncio.run(load(address, [2]))[0]

    async def switch() -> None:
        async with httpx.AsyncClient(base_url=address, timeout=120) as client:
            for _ in range(5):
                (await client.post("/start")).raise_for_status()
                (await client.get("/generate", params={"steps": 2})).raise_for_status()
                (await client.post("/stop")).raise_for_status()

    async def both() -> list[float]:
        answers, _ = await asyncio.gather(load(address, [2] * 30), switch())
        return answers

    answers = asyncio.run(both())
    calls = [call for session in server.finished[finished_before:] for call in session.calls]

    assert answers == [expected] * 30
    assert len(calls) >= 5
    assert {(len(call.steps_ms), len(call.stages_ms), call.failed) for call in calls} == {(2, 7, None)}
    assert installed_count() == 0


def test_memory_stays_bounded(served: tuple[Served, str]) -> None:
    """Of many requests the newest are held; what is gone is gone from memory too."""
    server, address = served
    httpx.post(f"{address}/start").raise_for_status()
    asyncio.run(load(address, [1] * 20))
    gc.collect()
    objects = len(gc.get_objects())
    asyncio.run(load(address, [1] * 40))
    gc.collect()
    grown = len(gc.get_objects()) - objects
    httpx.post(f"{address}/stop").raise_for_status()
    session = server.finished[-1]

    assert session.count == 60
    assert len(session.calls) == 20
    assert grown < 2_000  # a call held is some 300 objects: forty would be 12,000
