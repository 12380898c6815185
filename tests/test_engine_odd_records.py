"""Records of engines that are put together though their names, ids or contents are odd."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given

from recorded_calls import call_of, client_of
from stepscope.cli import main
from stepscope.cli.observed_command import lines_of
from stepscope.model.engine_record import CallRecord, ClientRecord, RawTraceFile
from stepscope.model.file_names import NAME_BYTES, as_file_name
from stepscope.model.spool_layout import CALLS, RAW, RUNNING
from stepscope.record.spool_reader import SpoolContent, read_spool
from stepscope.session.engines.collect import Destination, ObservedRequest, collect

ODD_IDS = ["../../../escaped", "/escaped", "..", "a" * 10_000, "nul\0", "\x1b[31mred\nnew line", "日本" * 100]


def put_together(
    to: Destination, *calls: CallRecord, clients: tuple[ClientRecord, ...] = ()
) -> tuple[tuple[ObservedRequest, ...], list[str]]:
    problems: list[str] = []
    content = SpoolContent(calls=calls, clients=clients, processes=(), unfinished=(), log=(), problems=())
    return collect(content, to, problems.append), problems


@given(st.text())
@example("..")
@example("")
def test_any_text_has_a_file_name(text: str) -> None:
    """One that is a name stays; no other leaves its folder or is hidden, and two stay two."""
    name = as_file_name(text)
    assert name not in {"", ".", ".."}
    assert not set(name) & set("/\\\0\n")
    assert not name.startswith(".")
    assert len(name.encode()) <= NAME_BYTES // 2
    assert as_file_name(text + "/") != as_file_name(text + ":")
    assert as_file_name("3f2a-request_7.b") == "3f2a-request_7.b"


@pytest.mark.parametrize("odd", ODD_IDS)
def test_a_clients_request_id_names_no_file_elsewhere(odd: str, tmp_path: Path) -> None:
    """It comes over the network: records and traces stay in their folders, whatever it is."""
    inside = tmp_path / "a" / "b" / "c"
    folder = inside / "records"
    (folder / RAW).mkdir(parents=True)
    (folder / CALLS).mkdir()
    export = {
        "traceEvents": [{"ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": 0, "dur": 1, "cat": "kernel"}]
    }
    (folder / RAW / "raw-1.json").write_text(json.dumps(export))
    call = call_of("vllm_omni_uniproc")
    raw = RawTraceFile(path="/elsewhere/raw-1.json", anchors=(), asked=3, all_stages=True)
    record = msgspec.json.encode(replace(call, request_id=odd, raw_trace=raw))
    (folder / CALLS / "1-1.json").write_bytes(record)
    problems: list[str] = []
    to = Destination(runs=inside / "runs", traces=inside / "traces")
    (found,) = collect(read_spool(folder), to, problems.append)
    assert problems == []
    (trace,) = (inside / "traces").iterdir()
    assert "traceEvents" in json.loads(gzip.decompress(trace.read_bytes()))
    (run,) = (inside / "runs").iterdir()
    assert sorted(path.name for path in run.iterdir()) == ["perf.json", "run.json"]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        ["1-1.json", trace.name, "perf.json", "run.json"]
    )
    (line, _) = lines_of((found,))
    assert line.isprintable()


def test_an_export_elsewhere_is_not_touched(tmp_path: Path) -> None:
    """A record from somebody else names any path: only what lies in its own folder is cut and taken away."""
    mine = tmp_path / "mine.json"
    mine.write_text('{"traceEvents": []}')
    folder = tmp_path / "records"
    (folder / CALLS).mkdir(parents=True)
    raw = RawTraceFile(path=str(mine), anchors=(), asked=3, all_stages=False)
    call = replace(call_of("vllm_omni_uniproc"), raw_trace=raw)
    (folder / CALLS / "1-1.json").write_bytes(msgspec.json.encode(call))
    (found,) = collect(read_spool(folder), Destination(traces=tmp_path / "traces"), print)
    assert found.run.traces == ()
    assert mine.exists()


def test_requests_of_one_id_keep_their_records_and_their_own_client(tmp_path: Path) -> None:
    """A client that numbers its requests anew after a restart: nothing is overwritten, no time another's."""
    first, client = call_of("vllm_omni_uniproc"), client_of("vllm_omni_uniproc")
    hour_ns = 3_600 * 10**9
    ends = first.recording.ends
    later = replace(
        ends,
        start_ns=ends.start_ns + hour_ns,
        returned_ns=ends.returned_ns + hour_ns,
        device_done_ns=ends.device_done_ns + hour_ns,
    )
    second = replace(first, recording=replace(first.recording, ends=later), number=7)
    clients = (
        client,
        replace(client, sent_ns=client.sent_ns + hour_ns, received_ns=client.received_ns + hour_ns + 5),
    )
    found, problems = put_together(Destination(runs=tmp_path), first, second, clients=clients)
    assert problems == []
    name = f"{first.request_id}-rank0"
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"{name}-1"]
    without, _ = put_together(Destination(), first, clients=clients[:1])
    assert found[0].wall_ns == without[0].wall_ns


def test_a_record_that_makes_no_sense_costs_only_itself() -> None:
    """Another version's, or damaged: typed as it must be, and its calls end before they begin."""
    call = call_of("vllm_omni_uniproc")
    turned = replace(call.recording, edges=tuple(reversed(call.recording.edges)))
    odd = replace(call, request_id="odd", recording=turned)
    found, (problem,) = put_together(Destination(), odd, call)
    assert [one.run.request_id for one in found] == [call.request_id]
    assert problem.startswith("the record of request odd makes no sense: ")


def test_what_runs_may_be_done_while_we_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that goes between listing and reading, and names that are no process, are no failure."""
    for name in ("12", "²", "x"):
        (tmp_path / RUNNING).mkdir(exist_ok=True)
        (tmp_path / RUNNING / name).write_text("request")
    read = Path.read_text

    def gone(path: Path, *given: Any, **named: Any) -> str:
        if path.name == "12":
            path.unlink()
        return read(path, *given, **named)

    monkeypatch.setattr(Path, "read_text", gone)
    assert read_spool(tmp_path).unfinished == ()


@pytest.mark.parametrize(
    "command",
    [["requests"], ["report"], ["gate", "--budget"], ["run"], ["slice"], ["compare", "x"], ["view"]],
)
def test_a_path_that_no_file_system_can_have_is_a_mistake(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A message and status 2, not the exception that pathlib raises for it."""
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([*command, "a" * 300]))
    assert ended.value.code == 2
    assert "stepscope: error: " in capsys.readouterr().err
