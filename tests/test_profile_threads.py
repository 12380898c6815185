"""``stepscope.profile``: sessions side by side, in threads and in forked processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import pipelines
import stepscope
from stepscope.capture.wrapping import installed_count


def test_sessions_of_two_pipelines_may_be_nested(sd: Any) -> None:
    """Each has its own calls."""
    other = pipelines.stable_diffusion()
    with stepscope.profile(sd) as one, stepscope.profile(other) as two:
        pipelines.sd(sd, 1)
        pipelines.sd(other, 2)

    assert [len(session.calls[0].steps_ms) for session in (one, two)] == [1, 2]


def test_two_sessions_in_two_threads_do_not_mix(sd: Any) -> None:
    """The same pipeline, each thread its own session, at the same time."""
    found: dict[int, list[int]] = {}
    barrier = threading.Barrier(2)
    pair = {2: pipelines.stable_diffusion(), 5: pipelines.stable_diffusion()}
    pipelines.sd(sd, 1)  # what it imports late, two threads must not import at once: diffusers' own race

    def work(steps: int) -> None:
        with stepscope.profile(pair[steps]) as session:
            for _ in range(3):
                barrier.wait()
                pipelines.sd(pair[steps], steps)
        found[steps] = [len(call.steps_ms) for call in session.calls]

    threads = [threading.Thread(target=work, args=(steps,)) for steps in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {2: [2, 2, 2], 5: [5, 5, 5]}


def test_a_session_may_start_in_one_thread_and_stop_in_another(sd: Any) -> None:
    """As a server does it: calls of every thread between the two are seen, none after."""
    session = stepscope.profile(sd)
    starter = threading.Thread(target=session.start)
    starter.start()
    starter.join()
    pipelines.sd(sd, 1)
    session.stop()
    pipelines.sd(sd, 1)

    assert session.count == 1
    assert installed_count() == 0


def test_a_call_on_its_way_when_the_session_ends_is_recorded_whole(sd: Any) -> None:
    """A server is switched off under load: the record has every step, and then nothing stays installed."""
    inside, go_on = threading.Event(), threading.Event()

    def callback(*arguments: Any) -> dict[str, Any]:
        inside.set()
        assert go_on.wait(120)
        return {}

    session = stepscope.profile(sd).start()
    thread = threading.Thread(target=lambda: pipelines.sd(sd, 4, callback_on_step_end=callback))
    thread.start()
    assert inside.wait(120)
    session.stop()
    go_on.set()
    thread.join()

    assert [len(call.steps_ms) for call in session.calls] == [4]
    assert "DecodingStage" in session.calls[0].stages_ms
    assert installed_count() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_worker_is_told_that_its_parents_session_does_not_see_it(tmp_path: Path) -> None:
    """Its call works and is not lost without a word."""
    pipeline = pipelines.ToyPipeline()
    said = tmp_path / "said"
    with stepscope.profile(pipeline) as session:
        pid = os.fork()
        if pid == 0:
            with pytest.warns(UserWarning, match="forked process"):
                said.write_text(str(float(pipeline().sum())))
            os._exit(0)
        os.waitpid(pid, 0)
        expected = pipeline()

    assert float(said.read_text()) == float(expected.sum())
    assert session.count == 1
