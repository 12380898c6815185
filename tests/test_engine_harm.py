"""What must not harm an engine or cost a record: full disks, emptied folders, odd requests."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fake_sglang import write_engine
from recorded_calls import call_of, client_of
from stepscope.capture import wrapping
from stepscope.capture.engines import sglang, spool, times, vllm_omni
from stepscope.capture.engines.hooks import Hooks
from stepscope.capture.engines.spool import Spool
from stepscope.capture.engines.times import OpenRequests
from stepscope.capture.inject.post_import import PostImport
from stepscope.model.run import Workload
from stepscope.model.spool_layout import CALLS, RUNNING
from stepscope.record.spool_reader import read_spool
from stepscope.workload.describe_call import describe_call

NO_UTF8 = "half a surrogate: \ud83d"


def without_msgspec() -> Callable[[Any], bytes]:
    """The encoder of an environment without msgspec."""
    installed = sys.modules.pop("msgspec")
    sys.modules["msgspec"] = None  # type: ignore[assignment]
    try:
        return spool.encoder()
    finally:
        sys.modules["msgspec"] = installed


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_not_the_engines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules are imported and wrapped though not even the list of hook points can be written."""
    write_engine(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    records = Spool(tmp_path / "records")
    monkeypatch.setattr(records, "_write", full)
    hooks = Hooks(sglang.ADAPTER, records)
    watch = PostImport(hooks.modules, hooks.imported)
    watch.install()
    try:
        name = f"{sglang.ROOT}.pipelines_core.executors.pipeline_executor"
        assert importlib.import_module(name).PipelineExecutor
    finally:
        watch.remove()
        hooks.wrappers.remove()
        for name in set(sys.modules) - before:
            del sys.modules[name]
    assert len(hooks.found) == 2
    assert "No space left on device" in read_spool(tmp_path / "records").log[0]


def test_a_request_is_observed_though_its_beginning_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full when it begins may have room when it is done: no exception, a line in the log."""
    records = Spool(tmp_path)
    monkeypatch.setattr(Path, "write_text", full)
    records.running("one")
    assert "running: OSError" in read_spool(tmp_path).log[0]


def test_a_record_that_cannot_be_written_whole_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first half would keep the disk full."""
    records = Spool(tmp_path)

    def half(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:100])
        full()

    monkeypatch.setattr(Path, "write_bytes", half)
    records.call(call_of("vllm_omni_uniproc"))
    records.close()
    assert list((tmp_path / CALLS).iterdir()) == []
    assert "No space left on device" in read_spool(tmp_path).log[0]


def test_a_folder_that_is_emptied_while_the_engine_serves_is_filled_again(tmp_path: Path) -> None:
    """``rm -r records/*`` between two experiments; a folder that is gone as a whole stays away."""
    folder = tmp_path / "records"
    records, record = Spool(folder), call_of("vllm_omni_uniproc")
    for inner in folder.iterdir():
        shutil.rmtree(inner)
    records.running("one")
    records.call(record)
    records.client(client_of("vllm_omni_uniproc"))
    records.close()
    content = read_spool(folder)
    assert (len(content.calls), len(content.clients), content.log) == (1, 1, ())
    assert [path.read_text() for path in (folder / RUNNING).iterdir()] == ["one"]
    shutil.rmtree(folder)
    records.running("two")
    records.call(record)
    records.close()
    assert not folder.exists()


def test_a_process_that_leaves_right_after_its_answer_has_written_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``os._exit`` and signals leave no time for anything: an answer waits a moment for its own record."""
    monkeypatch.setattr(times, "ANSWER_S", 60)
    records, requests = Spool(tmp_path), OpenRequests()
    monkeypatch.setattr(times, "the_spool", lambda: records)
    record = call_of("vllm_omni_uniproc")

    def answer(number: int) -> None:
        records.after_fork()
        for one in range(number, number + 3):
            requests.started(str(one))
            requests.ran(replace(record, request_id=str(one)))
            requests.finished(str(one))

    children = [forked(lambda number=number: answer(number)) for number in (0, 3, 6)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert {call.request_id for call in read_spool(tmp_path).calls} == set("012345678")


def test_a_forked_child_waits_for_no_lock_of_the_parents(tmp_path: Path) -> None:
    """Another thread had it when the process forked, and there is no such thread in the child."""
    requests = OpenRequests()
    with requests._lock:
        child = forked(lambda: requests.arrived("one"))
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with wrapping._lock:
            held.set()
            go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    threading.Timer(0.05, go.set).start()
    other = forked(lambda: wrapping.Wrappers().remove())  # waits until the other thread has done
    holder.join()
    assert [os.waitpid(one, 0)[1] for one in (child, other)] == [0, 0]


def test_an_asynchronous_client_may_have_all_its_answers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of requests under way that end in one turn of the event loop: each has its record."""
    records, disk = Spool(tmp_path), threading.Event()
    write = records._write
    monkeypatch.setattr(records, "_write", lambda *record: (disk.wait(), write(*record)))
    for _ in range(300):
        records.client(client_of("vllm_omni_uniproc"))
    disk.set()
    records.close(60)
    assert records.dropped == 0
    assert len(read_spool(tmp_path).clients) == 300


def forked(work: Callable[[], object]) -> int:
    """A child that does this and leaves as ``os._exit`` lets it; one that hangs is ended by its alarm."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


@pytest.mark.parametrize("make", [spool.encoder, without_msgspec])
def test_text_that_is_no_utf_8_costs_no_record(
    make: Callable[[], Callable[[Any], bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JSON request may hold half a surrogate, in its id or its prompt: it is written with an escape."""
    encoder = make()
    monkeypatch.setattr(spool, "encoder", lambda: encoder)
    records, record = Spool(tmp_path), call_of("vllm_omni_uniproc")
    records.running(NO_UTF8)
    records.call(
        replace(record, request_id=NO_UTF8, workload=Workload(model="", pipeline_class="", prompt=NO_UTF8))
    )
    records.client(replace(client_of("vllm_omni_uniproc"), request_id=NO_UTF8))
    records.close()
    content = read_spool(tmp_path)
    assert (content.log, content.problems) == ((), ())
    told = "half a surrogate: \\ud83d"
    assert (content.calls[0].request_id, content.calls[0].workload.prompt) == (told, told)
    assert content.clients[0].request_id == told
    assert content.unfinished == ((records.pid, told),)


@pytest.mark.parametrize(
    "odd", [[1, 2], "1024", float("nan"), float("inf"), 10**400, {}, True, None, object()]
)
def test_what_a_request_says_of_itself_costs_no_record(odd: Any, tmp_path: Path) -> None:
    """A list of seeds (SGLang takes one), sizes that are no numbers: unknown, and the request recorded."""
    names = (*sglang.GUIDANCE, "seed", "num_inference_steps", "height", "width", "num_frames")
    said = SimpleNamespace(**dict.fromkeys((*names, "prompt", "negative_prompt"), odd))
    wrapped = SimpleNamespace(sampling_params=said, prompt={"prompt": odd, "negative_prompt": odd})
    records, record = Spool(tmp_path), call_of("vllm_omni_uniproc")
    for workload in (sglang.workload_of(said, []), vllm_omni.workload_of(wrapped, None)):
        records.call(replace(record, workload=workload))
        assert (workload.seed, workload.height, workload.guidance) == (None, None, {})
    records.close()
    content = read_spool(tmp_path)
    assert (len(content.calls), content.problems, content.log) == (2, (), ())


@pytest.mark.parametrize("odd", [float("nan"), float("-inf"), 10**400, 2**80, [1, 2], {}, object()])
def test_what_a_pipeline_is_called_with_costs_no_record(odd: Any, tmp_path: Path) -> None:
    """The exception for such an argument is the pipeline's own; described, it is written and read."""

    class Pipeline:
        def __call__(self, prompt: str, height: int, negative_prompt: str, guidance_scale: float) -> None:
            """Nothing."""

    names = ("height", "negative_prompt", "guidance_scale")
    workload = describe_call(Pipeline(), ("a logo",), dict.fromkeys(names, odd))
    assert (workload.height, workload.guidance.get("guidance_scale")) in ((None, None), (None, 2.0**80))
    records = Spool(tmp_path)
    records.call(replace(call_of("vllm_omni_uniproc"), workload=workload))
    records.close()
    assert [call.workload for call in read_spool(tmp_path).calls] == [workload]


def test_several_prompts_are_recorded_as_one_text() -> None:
    """SGLang takes a list."""
    said = SimpleNamespace(prompt=["a logo", "a cat"], seed=7.0, height=512, guidance_scale=3)
    workload = sglang.workload_of(said, [])
    assert (workload.prompt, workload.seed, workload.height) == ("a logo; a cat", 7, 512)
    assert workload.guidance == {"guidance_scale": 3.0}
