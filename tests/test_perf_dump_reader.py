"""Reading perf dumps: SGLang's, ours, performance.log, and what is wrong with files in practice."""

import gzip
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumps import DATA, sglang_json, stepscope_json
from stepscope.model.errors import UnreadableInputError
from stepscope.record.perf_dump_reader import (
    is_perf_dump,
    perf_dump_from_json,
    read_perf_dump,
    read_perf_dumps,
)


def test_sglangs_own_dump_is_read_with_its_units() -> None:
    """A dump written by SGLang 0.5.23 keeps every number, its null request id becomes empty."""
    dump = read_perf_dump(DATA / "sglang_cpu_untraced.perf.json")
    assert dump.schema_version == 0
    assert dump.request_id == ""
    assert [stage.name for stage in dump.steps][-2:] == ["DenoisingStage", "DecodingStage"]
    assert dump.total_duration_ms == pytest.approx(3809.304)
    assert [step.step for step in dump.denoise_steps_ms] == list(range(8))
    assert dump.denoise_steps_ms[7].duration_ms == pytest.approx(35.611, abs=0.001)
    assert dump.meta["model"].endswith("Qwen-Image")


@pytest.mark.parametrize("with_loop", [True, False])
def test_steps_among_the_stages_of_an_older_dump_are_steps(with_loop) -> None:
    """Before SGLang #15537 a step was called denoising_step_3 and stood among the stages."""
    document = sglang_json([350.0, 351.0, 352.0])
    steps = [
        {"name": f"denoising_step_{step['step']}", "duration_ms": step["duration_ms"]}
        for step in document.pop("denoise_steps_ms")
    ]
    document["steps"] = [each for each in document["steps"] if with_loop or each["name"] != "DenoisingStage"]
    document["steps"][1:1] = steps
    dump = perf_dump_from_json(document, origin="x")
    assert [(step.step, step.duration_ms) for step in dump.denoise_steps_ms] == [
        (0, 350.0), (1, 351.0), (2, 352.0),
    ]  # fmt: skip
    assert {stage.name: stage.duration_ms for stage in dump.steps} == {
        "TextEncodingStage": 200.0, "DenoisingStage": 1053.0, "DecodingStage": 80.0,
    }  # fmt: skip


def test_our_dump_keeps_what_sglang_has_not() -> None:
    """Stages with occurrences, forwards, environment and memory come back as written."""
    dump = perf_dump_from_json(stepscope_json([350.0, 351.0]), origin="x")
    assert dump.stages[1].stage_index == 1
    assert dump.denoise_steps_ms[0].forwards[0].component == "transformer"
    assert dump.environment["device_name"] == "NVIDIA H200"
    assert dump.memory_checkpoints is not None
    assert dump.memory_checkpoints["after_DenoisingStage"].peak_allocated_mb == 49152


def test_performance_log_lines_are_runs(tmp_path) -> None:
    """Each line of performance.log is one run; a last line cut off by a killed writer is left out."""
    record = {
        "request_id": "a", "timestamp": "t", "commit_hash": "c", "tag": "pipeline_stage_metrics",
        "stages": [{"name": "DenoisingStage", "execution_time_ms": 30.0}], "steps": [10.0, 20.0],
        "total_duration_ms": 31.0,
        "memory_snapshots": {"after_forward": {
            "allocated_mb": 1, "reserved_mb": 2, "peak_allocated_mb": 3, "peak_reserved_mb": 4,
        }},
    }  # fmt: skip
    path = tmp_path / "performance.log"
    path.write_text(json.dumps(record) + "\n\n" + json.dumps(record | {"request_id": "b"}) + '\n{"request_')
    first, second = read_perf_dumps(path)
    assert (first.request_id, second.request_id) == ("a", "b")
    assert first.steps[0].duration_ms == 30.0
    assert [step.duration_ms for step in first.denoise_steps_ms] == [10.0, 20.0]
    assert first.memory_checkpoints is not None
    assert first.memory_checkpoints["after_forward"].peak_allocated_mb == 3


def test_gzip_and_byte_order_mark_do_not_matter(tmp_path) -> None:
    """A gzipped dump and one with a byte order mark are the same dump."""
    text = json.dumps(sglang_json([1.0]))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_perf_dump(tmp_path / "a.json.gz") == read_perf_dump(tmp_path / "b.json")


def test_an_entry_that_cannot_be_used_is_left_out_and_said() -> None:
    """Nulls, words and NaN among the steps cost that step only, and a warning names it."""
    document = sglang_json([10.0, 11.0, 12.0])
    document["denoise_steps_ms"][1] = {"step": 1, "duration_ms": None}
    document["steps"].append("nonsense")
    document["memory_checkpoints"] = {"x": 3}
    dump = perf_dump_from_json(document, origin="x")
    assert [step.step for step in dump.denoise_steps_ms] == [0, 2]
    assert len(dump.warnings) == 3
    assert dump.memory_checkpoints is None


def test_nan_is_no_number(tmp_path) -> None:
    """Python writes NaN into JSON; it is read as missing, never computed with."""
    document = sglang_json([10.0, math.nan], total_ms=math.nan, denoise_ms=10.0)
    path = tmp_path / "nan.json"
    path.write_text(json.dumps(document))
    dump = read_perf_dump(path)
    assert len(dump.denoise_steps_ms) == 1
    assert dump.total_duration_ms == 0.0
    assert "total_duration_ms is missing" in dump.warnings


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400])
def test_numbers_beyond_a_float_are_no_numbers(tmp_path, number) -> None:
    """An overflowing literal is left out like NaN, not read as infinity."""
    text = json.dumps(sglang_json([10.0, 11.0])).replace("11.0", number)
    path = tmp_path / "big.json"
    path.write_text(text)
    dump = read_perf_dump(path)
    assert [step.duration_ms for step in dump.denoise_steps_ms] == [10.0]
    assert dump.warnings


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[1, 2]", '{"traceEvents": []}', '{"a": 1}', "\x00\x01", "null"]
)
def test_other_files_are_refused_with_a_remedy(tmp_path, text) -> None:
    """What is not a perf dump is an UnreadableInputError that says what to give instead."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UnreadableInputError) as caught:
        read_perf_dump(path)
    assert caught.value.remedy
    assert str(path) in str(caught.value)


def test_a_missing_or_binary_file_is_refused(tmp_path) -> None:
    """No file and a file that is not text are user mistakes, not tracebacks."""
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"{}")[:-9])
    for name in ("none.json", "b", "cut.gz"):
        with pytest.raises(UnreadableInputError):
            read_perf_dump(tmp_path / name)


def test_a_newer_schema_is_refused() -> None:
    """A dump from a newer stepscope is not guessed at."""
    with pytest.raises(UnreadableInputError, match="Upgrade"):
        perf_dump_from_json(sglang_json([1.0]) | {"schema_version": 99}, origin="x")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*sorted(stepscope_json([1.0])), "warnings"]), json_values)
def test_any_value_in_any_field_is_read_or_refused(key, value) -> None:
    """Whatever stands in one field, the reader gives a dump or an UnreadableInputError, nothing else."""
    document = stepscope_json([350.0, 351.0]) | {key: value}
    try:
        dump = perf_dump_from_json(document, origin="x")
        del document["denoise_steps_ms"]
        perf_dump_from_json(document | {"tag": "pipeline_stage_metrics"}, origin="x")
    except UnreadableInputError:
        return
    assert isinstance(dump.warnings, tuple)


def test_dumps_and_traces_are_told_apart() -> None:
    """A trace is not taken for a dump, even one that carries a dump's key."""
    assert is_perf_dump(sglang_json([1.0]))
    assert not is_perf_dump({"traceEvents": [], "total_duration_ms": 1})
    assert not is_perf_dump([])


@pytest.mark.parametrize("where", ["duration_ms", "step"])
def test_half_a_surrogate_where_no_text_belongs_costs_only_its_step(where) -> None:
    """JSON may hold one anywhere: it is no word of ours and no number, and is said like any other fault."""
    document = stepscope_json([350.0, 351.0])
    document["denoise_steps_ms"][0][where] = "\ud800"
    dump = perf_dump_from_json(document, origin="x")
    assert [step.duration_ms for step in dump.denoise_steps_ms] == [351.0]
    assert any("denoise_steps_ms[0] left out" in warning for warning in dump.warnings)
