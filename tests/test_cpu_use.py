"""A CPU that was taken away: read from the system's counters, said on the line of trust."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pipelines
from observing import observe
from runs import MS, three_stages
from stepscope.analyse.run.cpu_trust import WAITED_SHARE, with_cpu_warning
from stepscope.analyse.run.reconcile import reconcile
from stepscope.capture import cpu_use, held_up
from stepscope.model.run import Clock, CpuUse, Run
from stepscope.model.vocabulary import ClockKind
from traced_calls import trace


def on_the_host(**use: int) -> Run:
    """A run on the host's clock, its call one second long."""
    clock = Clock(kind=ClockKind.HOST, self_test="the host does the work")
    plain = {"wall_ns": 1000 * MS, "cpu_ns": 500 * MS, "cpus": 4}
    return replace(three_stages(), clock=clock, cpu=CpuUse(**plain | use))


def starved(run: Run) -> list[str]:
    return [reason for reason in reconcile(run).trust.reasons if "took the CPU" in reason]


def test_a_run_on_a_cpu_that_was_taken_away_is_untrusted_with_the_share() -> None:
    """Waiting 43 % of the time is no measurement of the pipeline."""
    [reason] = starved(on_the_host(waited_ns=430 * MS))
    assert "43 % of the call" in reason
    assert "500 ms of CPU time in 1000 ms" in reason


@pytest.mark.parametrize(
    "use",
    [
        {"waited_ns": round(WAITED_SHARE * 1000 * MS)},
        {},
        {"waited_ns": 600 * MS, "cpu_ns": 3900 * MS},  # more threads than CPUs: it waited for itself
    ],
    ids=["little", "not known", "its own threads"],
)
def test_what_is_no_ones_fault_leaves_the_numbers_trusted(use: dict[str, int]) -> None:
    """A little waiting is normal, an unknown one no reason, and one's own threads are no others."""
    assert starved(on_the_host(**use)) == []


def test_a_starved_host_of_a_device_is_a_warning() -> None:
    """Device events measured the device; what the host issued late is in them all the same."""
    clock = Clock(kind=ClockKind.DEVICE_EVENTS, self_test="passed")
    run = replace(on_the_host(waited_ns=430 * MS), clock=clock)
    assert starved(run) == []
    [warning] = with_cpu_warning(run)
    assert "the host sets the pace" in warning


def test_another_calls_profiler_is_a_reason_on_any_device() -> None:
    """What stops a process for its profiler is in the times of every other call, whoever keeps its clock."""
    run = on_the_host(held_up_ns=121 * MS)
    for found in (run, replace(run, clock=Clock(kind=ClockKind.DEVICE_EVENTS, self_test="passed"))):
        [reason] = [text for text in reconcile(found).trust.reasons if "at its profiler" in text]
        assert "for 121.0 ms of this one" in reason
    assert not reconcile(on_the_host(held_up_ns=20 * MS)).trust.reasons


def test_only_other_threads_hold_a_call_up_and_each_moment_once() -> None:
    """Two at once, one that began before the call and one that goes on: what lies inside of the interval."""
    inside, leave = threading.Barrier(3), threading.Event()

    def hold() -> None:
        with held_up.holding_up_others():
            inside.wait(60)
            leave.wait(60)

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    start_ns = time.perf_counter_ns()
    with held_up.holding_up_others():
        pass
    middle_ns = time.perf_counter_ns()
    under_way_ns = held_up.held_up_ns(start_ns, middle_ns)
    leave.set()
    for thread in threads:
        thread.join(60)
    end_ns = time.perf_counter_ns()
    assert under_way_ns == middle_ns - start_ns
    assert middle_ns - start_ns < held_up.held_up_ns(start_ns, end_ns) <= end_ns - start_ns
    assert held_up.held_up_ns(end_ns, end_ns + 1000) == 0


def test_a_call_beside_a_traced_one_knows_what_held_it_up(flux: Any, tmp_path: Path) -> None:
    """The other thread's profiler starts, stops and writes in the middle of this call."""

    def callback(_: Any, step: int, *__: Any) -> dict[str, Any]:
        if step == 1:
            other = threading.Thread(target=trace, args=(flux, 2, 1, tmp_path))
            other.start()
            other.join(60)
        return {}

    sd = pipelines.stable_diffusion()
    run = observe(sd, lambda: pipelines.sd(sd, 3, callback_on_step_end=callback)).run
    assert run.cpu is not None
    assert run.cpu.held_up_ns > 0
    assert trace(flux, 2, 1, tmp_path).run.cpu.held_up_ns == 0


def write(folder: Path, **threads: str) -> None:
    for name, text in threads.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "schedstat").write_text(text)


def test_the_working_thread_that_waited_longest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the sum, which exceeds the time that passed; not a thread that hardly ran; nor one that ended."""
    monkeypatch.setattr(cpu_use, "THREADS", tmp_path)
    write(tmp_path, main="100 10 5", worker="50 0 5", bar="0 0 0", gone="1 1 1", odd="nonsense")
    before = cpu_use.read_cpu()
    (tmp_path / "gone" / "schedstat").unlink()
    write(tmp_path, main="1100 310 9", worker="850 400 8", bar="20 900 8")
    after = replace(cpu_use.read_cpu(), wall_ns=before.wall_ns + 2000)
    assert cpu_use.cpu_use(before, after).waited_ns == 400


def test_a_system_without_these_counters_says_that_it_is_not_known() -> None:
    """No zero: on macOS there is nothing to read."""
    reading = cpu_use.read_cpu()
    assert reading.threads == {}
    assert cpu_use.cpu_use(reading, cpu_use.read_cpu()).waited_ns is None


def test_an_observed_call_holds_its_use_of_the_cpu() -> None:
    """From before the first to after the last thing that is timed."""
    import stepscope

    [result] = stepscope.generate(prompt="x", num_inference_steps=1, save_output=False)
    assert result.run.cpu is not None
    assert result.run.cpu.cpu_ns > 0
    assert result.run.ends is not None
    assert result.run.cpu.wall_ns >= result.run.ends.device_done_ns - result.run.ends.start_ns
