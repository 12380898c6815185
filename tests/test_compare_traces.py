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
