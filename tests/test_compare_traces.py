"""Traces held against each other: kernels sum to the difference, whoever recorded them."""

import json
from pathlib import Path

import pytest

from stepscope.cli import main

DATA = Path(__file__).parent / "data" / "traces"
EAGER = "qwen_image_4layer_all_stages_stack_memory.trace.json.gz"


def compared(capsys, *arguments):
    assert main(["compare", *map(str, arguments), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["comparisons"][0]


def test_a_trace_against_itself_is_no_change(capsys) -> None:
    """Nothing appears, disappears or changes, and the GPU's span is the same."""
    comparison = compared(capsys, DATA / EAGER, DATA / EAGER)
    assert comparison["total"]["name"] == "GPU span"
    assert comparison["total"]["verdict"] == "no change"
    assert comparison["kernels"]["difference_ms"] == 0
    assert {row["state"] for row in comparison["kernels"]["kernels"]} == {"same"}
    assert comparison["throughput"] is None


def test_two_traces_of_different_things(capsys) -> None:
    """Another GPU count and other steps need --anyway; then both kernel tables sum to the difference."""
    other = DATA / "ulysses2-global-rank0.trace.json.gz"
    comparison = compared(capsys, DATA / EAGER, other, "--anyway")
    kernels = comparison["kernels"]
    for rows in (kernels["kernels"], kernels["categories"]):
        assert sum(row["difference_ms"] for row in rows) == pytest.approx(kernels["difference_ms"])
    assert kernels["difference_ms"] == pytest.approx(kernels["new_ms"] - kernels["base_ms"])


def test_a_dump_against_a_trace_is_unlike(tmp_path, capsys) -> None:
    """A run's times and a trace's are not the same measurement."""
    dump = Path(__file__).parent / "data" / "dumps" / "sglang_cpu_untraced.perf.json"
    assert main(["compare", str(dump), str(DATA / EAGER)]) == 2
    assert "measured from run against trace" in capsys.readouterr().err


def test_regional_compilation_in_kernels(shared_traces, capsys) -> None:
    """Eager against compiled blocks: Triton kernels appear, elementwise time goes, GEMMs stay."""
    compiled = shared_traces / "qwen_image_4layer_compiled_blocks.trace.json.gz"
    kernels = compared(capsys, shared_traces / EAGER, compiled)["kernels"]
    states = {row["name"]: row["state"] for row in kernels["kernels"]}
    assert any(name.startswith("triton_") and state == "appeared" for name, state in states.items())
    categories = {row["name"]: row for row in kernels["categories"]}
    assert categories["gemm"]["state"] == "same"
    assert categories["elementwise"]["difference_ms"] < -2


def on_a_cpu(path, step_ms):
    """A trace of ours with three steps and no GPU events."""
    where = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "args": {"stepscope": True}}
    spans = [("DenoisingStage", 0, 3 * step_ms)]
    spans += [(f"denoising_step_{i}", i * step_ms, step_ms) for i in range(3)]
    events = [where | {"name": name, "ts": 1000 * at, "dur": 1000 * ms} for name, at, ms in spans]
    document = {"schemaVersion": 1, "deviceProperties": [], "stepscope": {"schema": 1}, "traceEvents": events}
    path.write_text(json.dumps(document))
    return path


def test_traces_of_a_cpu_have_no_total_and_say_why(tmp_path, capsys) -> None:
    """Stages and steps are compared; the total is in neither, and there are no kernels to show."""
    paths = on_a_cpu(tmp_path / "a.json", 20), on_a_cpu(tmp_path / "b.json", 30)
    comparison = compared(capsys, *paths)
    assert comparison["total"]["verdict"] == "no verdict"
    assert comparison["total"]["reason"].startswith("neither trace has GPU events")
    assert [row["verdict"] for row in comparison["stages"]] == ["worse"]
    assert comparison["kernels"] is None
    assert not any("record its environment" in text for text in comparison["warnings"])
    assert sum("names no device" in text for text in comparison["warnings"]) == 2
    assert main(["compare", *map(str, paths)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("NO VERDICT: neither trace has GPU events")
    assert "Kernel" not in said


def test_a_trace_of_a_cpu_against_one_of_a_gpu(tmp_path, capsys) -> None:
    """One total is missing, and the kernels all appeared."""
    comparison = compared(capsys, on_a_cpu(tmp_path / "a.json", 20), DATA / EAGER, "--anyway")
    assert comparison["total"]["reason"].startswith("a trace has no GPU events")
    assert {row["state"] for row in comparison["kernels"]["categories"]} == {"appeared"}
