"""``--trace-detail`` on a tiny pipeline: what each detail records, and that none changes the picture."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("diffusers")

import stepscope
from stepscope.record.kineto.reader import read_kineto

DETAILS = ("kernels", "ops", "source", "full")


def generate(folder: Path, **flags: Any) -> Any:
    places = {"profile_dir": folder, "output_path": folder}
    [result] = stepscope.generate(**{"prompt": "a cat", "num_inference_steps": 5} | places | flags)
    return result


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run for each detail and one untraced, of the same request."""
    folder = tmp_path_factory.mktemp("logs")
    found = {"untraced": generate(folder)}
    for detail in DETAILS:
        found[detail] = generate(folder, profile=True, trace_detail=detail, num_profiled_timesteps=2)
    return found


def document(result: Any) -> dict[str, Any]:
    return json.loads(gzip.decompress(Path(result.trace_path).read_bytes()))


def operators(result: Any) -> list[dict[str, Any]]:
    return [event for event in document(result)["traceEvents"] if event.get("cat") == "cpu_op"]


def test_the_picture_is_the_same_at_every_detail(results: dict[str, Any]) -> None:
    """The mapping pass has its own generators and puts global random state back."""
    assert len({result.run.outputs[0].sha256 for result in results.values()}) == 1


@pytest.mark.parametrize("detail", DETAILS)
def test_every_detail_holds_exactly_the_steps(results: dict[str, Any], detail: str) -> None:
    """Two steps by name, and the same operators in each detail."""
    spans = Counter(
        event["name"]
        for event in document(results[detail])["traceEvents"]
        if event.get("args", {}).get("stepscope")
    )

    assert {name for name in spans if name.startswith("denoising_step")} == {
        "denoising_step_1",
        "denoising_step_2",
    }
    names = Counter(event["name"] for event in operators(results[detail]))
    assert names == Counter(event["name"] for event in operators(results["source"]))
    assert sum(names.values()) > 1000


def test_at_source_every_operator_has_its_exact_line_and_module(results: dict[str, Any]) -> None:
    """What no other detail can tell: the line that called, below its path in the pipeline."""
    events = operators(results["source"])

    assert all("source" in event["args"] and "exact" not in event["args"] for event in events)
    places = {
        (event["name"], event["args"]["source"].split(":")[0].rpartition("/")[2], event["args"].get("module"))
        for event in events
    }
    attention = "transformer.transformer_blocks.0.attn"
    assert ("aten::scaled_dot_product_attention", "attention_dispatch.py", attention) in places
    assert any(module is None and file.startswith("pipeline_") for _, file, module in places)  # guidance
    assert any(file.startswith("scheduling_") for _, file, _ in places)
    mapping = document(results["source"])["stepscope"]["mapping"]
    assert mapping["calls"] == mapping["checked"] == mapping["exact_lines"]


def test_the_line_named_is_the_line_that_calls(results: dict[str, Any]) -> None:
    """Looked up in the file: the activation's line calls an activation."""
    import diffusers

    root = Path(diffusers.__file__).parents[1]
    [place] = {e["args"]["source"] for e in operators(results["source"]) if e["name"] == "aten::gelu"}
    file, _, rest = place.partition(":")
    line = (root / file).read_text().splitlines()[int(rest.split()[0]) - 1]

    assert "gelu" in line


def test_only_full_has_python_frames_and_only_full_and_source_have_shapes(results: dict[str, Any]) -> None:
    """Each detail is what its help says."""
    traces = {detail: read_kineto(Path(results[detail].trace_path)) for detail in DETAILS}

    assert {detail for detail, trace in traces.items() if trace.has_stacks} == {"full"}
    assert {detail for detail, trace in traces.items() if trace.has_shapes} == {"full", "source"}
    assert {detail for detail, trace in traces.items() if trace.sources} == {"source"}


def test_the_report_shows_the_lines(results: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """``stepscope report`` reads them back."""
    from stepscope.cli import main

    assert main(["report", str(results["source"].trace_path)]) == 0
    assert "TRUSTED" in capsys.readouterr().out


def test_source_is_the_default_and_smaller_than_full(results: dict[str, Any], tmp_path: Path) -> None:
    """At a quarter of its bytes at most, on this pipeline at least a third of them are saved."""
    size = {detail: Path(results[detail].trace_path).stat().st_size for detail in DETAILS}
    result = generate(tmp_path, profile=True, num_profiled_timesteps=2)

    assert "mapping" in document(result)["stepscope"]
    assert size["source"] < 0.5 * size["full"]


def test_without_a_warm_up_there_are_no_lines_and_it_is_said(tmp_path: Path) -> None:
    """The mapping pass is part of the warm-up; a trace is written all the same."""
    result = generate(tmp_path, profile=True, num_profiled_timesteps=1, warmup=False)

    assert any("no source lines: --no-warmup" in warning for warning in result.run.warnings)
    assert not any("source" in event["args"] for event in operators(result))


def test_where_a_debugger_follows_lines_it_is_said(tmp_path: Path) -> None:
    """Its trace function is left alone, and the trace has no lines."""

    def theirs(*_: Any) -> None:
        return None

    sys.settrace(theirs)
    try:
        result = generate(tmp_path, profile=True, num_profiled_timesteps=1)
        assert sys.gettrace() is theirs
    finally:
        sys.settrace(None)
    assert any("debugger or a coverage tool" in warning for warning in result.run.warnings)
    assert operators(result)


def test_the_cap_holds_whatever_the_forecast_said(tmp_path: Path) -> None:
    """A file that is larger after all is written again with fewer steps; its name and note say so."""
    free = generate(tmp_path, profile=True, num_profiled_timesteps=3, trace_detail="ops", warmup=False)
    size = Path(free.trace_path).stat().st_size
    result = generate(
        tmp_path,
        profile=True,
        num_profiled_timesteps=3,
        trace_detail="ops",
        warmup=False,
        max_trace_mb=0.7 * size / 1e6,
    )

    assert Path(result.trace_path).stat().st_size <= 0.7 * size
    assert "-2_steps-" in Path(result.trace_path).name
    assert "the trace holds 2 of 3 steps" in result.run.traces[0].note
    assert result.run.traces[0].steps == (1, 2)
