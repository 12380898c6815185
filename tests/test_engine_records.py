"""What real engines recorded on a CPU (benchmarks/engines/demonstrate.py), put together."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engines.third_clock import apart, of_sglang, of_vllm_omni
from recorded_calls import DATA, call_of, client_of
from stepscope.analyse.run.account import around, missing_ns, wall_ns
from stepscope.analyse.run.dump_trust import judge
from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.step_cache import disagreement
from stepscope.capture.engines.control import Control
from stepscope.capture.engines.spool import Spool
from stepscope.model.engine_record import RawTraceFile
from stepscope.model.recording import CachedForward
from stepscope.model.spool_layout import CALLS, CONTROL
from stepscope.model.vocabulary import Outside, StepWork
from stepscope.record import spool_reader
from stepscope.record.perf_dump_reader import read_perf_dump
from stepscope.session.engines.collect import Destination, collect, run_of

RECORDED = ("sglang_untraced", "sglang_own_3", "vllm_omni_uniproc", "vllm_omni_mp")


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_requests_have_their_steps_and_add_up(name: str) -> None:
    """Eight steps of two forwards that sum to their stage, nothing unaccounted, nothing untrusted."""
    run = run_of(call_of(name), client_of(name))
    dump = reconcile(run)
    assert [len(step.forwards) for step in run.steps] == [2] * 8
    stage = next(item for item in dump.steps if item.name == "DenoisingStage")
    assert sum(step.duration_ms for step in dump.denoise_steps_ms) == pytest.approx(stage.duration_ms)
    assert abs(dump.unaccounted_ms or 0) < 0.2
    assert dump.trust is not None
    ours = [reason for reason in dump.trust.reasons if "other work took the CPU" not in reason]
    assert ours == []  # that the machine was shared is no fault of ours


@pytest.mark.parametrize("name", RECORDED)
def test_the_clients_wall_time_is_accounted_for(name: str) -> None:
    """Queue, transfers, worker, saving and client are outside stages that leave nothing of the wall time."""
    call, client = call_of(name), client_of(name)
    assert call.request_id == client.request_id
    assert abs(missing_ns(call, client)) < 0.001 * wall_ns(client)
    names = {item.name for item in around(call, client)}
    assert names >= {Outside.QUEUE_WAIT, Outside.REQUEST_TRANSFER, Outside.RESULT_TRANSFER, Outside.CLIENT}


def test_what_is_done_with_the_answer_belongs_to_the_wall_time_where_no_call_was_seen() -> None:
    """An asynchronous client's own call is not seen: its wall time ends with the saving, none of it twice."""
    call = call_of("vllm_omni_mp")
    client = replace(client_of("vllm_omni_mp"), called_ns=None, returned_ns=None)
    (saving,) = client.around
    assert wall_ns(client) == saving.end_ns - client.sent_ns
    assert abs(missing_ns(call, client)) < 0.001 * wall_ns(client)


def test_steps_between_which_vllm_omni_schedules_are_free_of_that() -> None:
    """Step by step in a worker, what lies between two steps is an outside stage and in no step."""
    run = run_of(call_of("vllm_omni_mp"), client_of("vllm_omni_mp"))
    between = [item for item in run.outside if item.name == Outside.ENGINE_SCHEDULING]
    assert len(between) == 7
    assert run.pauses == ()
    assert not [
        item
        for item in run_of(call_of("vllm_omni_uniproc"), None).outside
        if item.name == Outside.ENGINE_SCHEDULING
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_every_step_is_that_of_a_clock_that_only_takes_times(name: str) -> None:
    """The first and last too, to 0.2 ms; an engine's scheduling and its profiler are in none."""
    run = run_of(call_of(name), client_of(name))
    times = json.loads((DATA / f"{name}.times_only.json").read_text())
    third = of_sglang(times) if name.startswith("sglang") else of_vllm_omni(times, steps=8)[-1]
    pauses = [(pause.host_start_ns / 1e6, pause.host_end_ns / 1e6) for pause in run.pauses]
    steps_ms = [step.span.duration_ns / 1e6 for step in run.steps]
    assert apart(steps_ms, pauses, third, close_ms=0.2) == []
    assert bool(pauses) == (name == "sglang_own_3")
    steps_ms[0] += 0.3
    assert apart(steps_ms, pauses, third, close_ms=0.2) != []


def test_sglangs_own_profiler_is_charged_to_its_steps_and_not_to_ours() -> None:
    """Its stop and export lie in steps 4 and 5 of its dump, and in none of ours."""
    ours = [step.span.duration_ns / 1e6 for step in run_of(call_of("sglang_own_3"), None).steps]
    theirs = read_perf_dump(DATA / "sglang_own_3.perf.json")
    (reason,) = judge(theirs).reasons
    assert "The other steps and the other stages can be kept" in reason
    assert [step.duration_ms for step in theirs.denoise_steps_ms][4] > 5 * ours[4]
    assert [step.duration_ms for step in theirs.denoise_steps_ms][5] > 20 * ours[5]


def test_the_steps_that_sglang_recorded_are_marked() -> None:
    """Asked for 3 it records 4, after a step of warm-up; the seconds of its profiler are a pause."""
    run = run_of(call_of("sglang_own_3"), None)
    assert [step.index for step in run.steps if step.traced] == [1, 2, 3, 4]
    assert all(pause.reason == "profiler (SGLang's own)" for pause in run.pauses)
    assert sum(pause.duration_ns for pause in run.pauses) > 1e9


def test_another_machines_clock_is_not_put_on_one_line() -> None:
    """Where the clocks differ, the client's times are left out rather than subtracted."""
    call, client = call_of("sglang_own_3"), client_of("sglang_own_3")
    elsewhere = replace(client, clock_offset_ns=client.clock_offset_ns + 10**12)
    assert {item.name for item in around(call, elsewhere)} == {
        Outside.QUEUE_WAIT,
        Outside.WORKER,
        Outside.OUTPUT_SAVING,
    }


def test_a_step_cache_is_told_by_blocks_and_by_its_own_word() -> None:
    """Computed, partly computed and skipped steps; a cache that says something else is contradicted."""
    call = call_of("sglang_own_3")
    full, part = (
        CachedForward(blocks=4, of_blocks=4, cached=False),
        CachedForward(blocks=1, of_blocks=4, cached=True),
    )
    none = CachedForward(blocks=0, of_blocks=4, cached=None)
    seen = (*[full] * 4, part, part, none, none, *[full] * 8)
    recording = replace(call.recording, cache="cache-dit", cached_forwards=seen)
    run = run_of(replace(call, recording=recording), None)
    assert [step.work for step in run.steps][:5] == [
        StepWork.COMPUTED,
        StepWork.COMPUTED,
        StepWork.PARTLY_COMPUTED,
        StepWork.SKIPPED,
        StepWork.COMPUTED,
    ]
    assert run.engaged.cached_steps == 2
    worth = run.step_cache
    assert worth is not None
    assert worth.cached_steps == (2, 3)
    assert worth.theoretical_speedup == pytest.approx(64 / 50)
    lying = replace(full, cached=True)
    assert disagreement((full, lying)) == (
        "the step cache's own word differs from the blocks that were computed in forwards [1]"
    )


def test_the_third_clock_ends_a_step_where_the_progress_bar_moves_on() -> None:
    """After the scheduler, before the next; with the scheduler where none moves, the last with its stage."""
    times = [
        ("stage", "DenoisingStage", 0.0, 0.100),
        *(("scheduler", None, at, at + 0.001) for at in (0.010, 0.030, 0.050)),
        *(("progress", None, at, at + 0.001) for at in (0.005, 0.015, 0.070)),
    ]
    steps = of_sglang(times).steps
    assert [round(end) for _, end in steps] == [16, 31, 100]


def test_a_server_leaves_a_bounded_number_of_records(tmp_path: Path) -> None:
    """The oldest go: ten thousand requests leave as many files as are kept."""
    spool = Spool(tmp_path, kept=5)
    record = call_of("vllm_omni_uniproc")
    for number in range(20):
        spool.call(replace(record, number=number))
    spool.close()
    content = spool_reader.read_spool(tmp_path)
    assert [call.number for call in content.calls] == [15, 16, 17, 18, 19]
    assert spool.dropped == 0


def test_a_traced_request_outlives_the_others_and_goes_with_its_export(tmp_path: Path) -> None:
    """Ten thousand requests later the chosen ones are still there; of too many the oldest go whole."""
    spool = Spool(tmp_path, kept=5, kept_traces=2)
    record = call_of("vllm_omni_uniproc")
    for number in range(30):
        raw = None
        if number < 3:
            raw = RawTraceFile(path=str(tmp_path / f"{number}.raw"), anchors=(), asked=1, all_stages=False)
            Path(raw.path).touch()
        spool.call(replace(record, number=number, raw_trace=raw))
    spool.close()
    content = spool_reader.read_spool(tmp_path)
    assert [call.number for call in content.calls] == [1, 2, 25, 26, 27, 28, 29]
    assert [path.name for path in sorted(tmp_path.glob("*.raw"))] == ["1.raw", "2.raw"]


def record_calls(folder: Path, count: int) -> None:
    """The work of a process that records calls and ends at once."""
    spool, record = Spool(folder), call_of("vllm_omni_uniproc")
    for number in range(count):
        spool.call(replace(record, number=number))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_that_ends_has_written_its_last_records(method: str, tmp_path: Path) -> None:
    """A forked worker of multiprocessing leaves without what ``atexit`` holds; its records are waited for."""
    worker = multiprocessing.get_context(method).Process(target=record_calls, args=(tmp_path, 40))
    worker.start()
    worker.join()
    content = spool_reader.read_spool(tmp_path)
    assert [call.number for call in content.calls] == [*range(40)]


def test_a_request_begins_when_the_records_before_it_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the writer comes; a disk that hangs is waited for once, until it has caught up."""
    spool, disk, waits = Spool(tmp_path), threading.Event(), []
    write = spool._write
    monkeypatch.setattr(spool, "_write", lambda *record: (disk.wait(), write(*record)))
    wait_for = spool._queue.all_tasks_done.wait_for
    monkeypatch.setattr(
        spool._queue.all_tasks_done, "wait_for", lambda *given: (waits.append(given[1]), wait_for(*given))
    )
    spool.call(call_of("vllm_omni_uniproc"))
    spool.settle(0.01)
    spool.settle(0.01)
    assert waits == [0.01]
    disk.set()
    spool._queue.join()
    spool.settle()
    for number in range(20):
        spool.call(replace(call_of("vllm_omni_uniproc"), number=number))
        spool.settle(60)
        assert len(list((tmp_path / CALLS).glob("*.json"))) == number + 2
    spool.close()


def test_a_disk_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is full and nothing is written: what is lost is counted, and the process may end."""
    spool, disk = Spool(tmp_path), threading.Event()
    monkeypatch.setattr(spool, "_write", lambda *_: disk.wait())
    for number in range(80):
        spool.call(replace(call_of("vllm_omni_uniproc"), number=number))
    ending = threading.Thread(target=spool.close, args=(0.05,), daemon=True)
    ending.start()
    ending.join(60)
    ended = not ending.is_alive()
    disk.set()
    assert ended
    assert spool.dropped in (15, 16)  # the writer holds one of the 64, or has not come to it
    log = " ".join(spool_reader.read_spool(tmp_path).log)
    assert "could not be written in 0.05 s" in log
    assert f"{spool.dropped} records were dropped" in log


def test_what_is_written_is_read_and_a_damaged_record_costs_only_itself(tmp_path: Path) -> None:
    """The request a process is at, its log, and what is wrong with a file."""
    spool = Spool(tmp_path)
    spool.running("request")
    spool.fault("here", ValueError("wrong"))
    (tmp_path / CALLS / "1-1.json").write_text("{")
    content = spool_reader.read_spool(tmp_path)
    assert content.unfinished == ((spool.pid, "request"),)
    assert content.log == (f"{spool.pid}: here: ValueError: wrong",)
    assert len(content.problems) == 1


def test_tracing_is_counted_and_chosen_by_the_control_file(tmp_path: Path) -> None:
    """The next N, chosen ids, every one, none; observation can be switched off and on."""
    control = Control(tmp_path)
    assert control.wanted("a") is None
    (tmp_path / CONTROL).write_text(json.dumps({"next": 2, "steps": 3}))
    assert [control.wanted(name) is not None for name in "abc"] == [True, True, False]
    (tmp_path / CONTROL).write_text(json.dumps({"request_ids": ["x"], "all_stages": True}))
    assert control.wanted("a") is None
    chosen = control.wanted("x")
    assert chosen is not None
    assert chosen.all_stages
    (tmp_path / CONTROL).write_text(json.dumps({"observe": False}))
    assert not control.observes()
    (tmp_path / CONTROL).unlink()
    assert control.observes()


@pytest.mark.parametrize(
    "content",
    [
        b"{ not json",
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"request_ids": 5}',
        b'{"request_ids": [5]}',
        b'{"next": null}',
        b'{"every": true, "steps": "x"}',
        b'{"every": true, "steps": 1e400}',
        b'{"every": true, "steps": 0}',
        b'{"every": "false"}',
        b'{"next": 1}' + b" " * (1 << 20),
        None,
    ],
)
def test_a_control_file_that_cannot_be_used_costs_traces_and_not_records(
    tmp_path: Path, content: bytes | None
) -> None:
    """Each request is observed and none traced; the log says once why, until the file has changed."""
    path = tmp_path / CONTROL
    os.mkfifo(path) if content is None else path.write_bytes(content)
    control = Control(tmp_path)
    for name in "ab":
        assert control.observes()
        assert control.wanted(name) is None
    (said,) = spool_reader.read_spool(tmp_path).log
    assert "control.json cannot be used and nothing is traced: " in said
    path.unlink()
    path.write_text('{"next": 1}')
    assert control.wanted("c") is not None


def test_dumps_are_written_for_recorded_calls(tmp_path: Path) -> None:
    """``collect`` writes a dump and a run record for each call, numbered in order of time."""
    calls = (call_of("sglang_own_3"), call_of("vllm_omni_mp"))
    content = spool_reader.SpoolContent(
        calls=calls, clients=(), processes=(), unfinished=(), log=(), problems=()
    )
    problems: list[str] = []
    to = Destination(perf_dump=tmp_path / "perf.json", runs=tmp_path / "runs")
    found = collect(content, to, problems.append)
    assert problems == []
    assert [request.engine for request in found] == ["sglang", "vllm_omni"]
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["perf-1.json", "perf.json"]
    assert len(list((tmp_path / "runs").glob("*/run.json"))) == 2
