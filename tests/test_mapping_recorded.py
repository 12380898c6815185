"""The mapping pass and a lean recording of the same pipeline on an H200: Qwen-Image cut to four blocks.

``tests/data/mapping`` has one step of the pass and two of the measured request, cut from what
benchmarks/gpu_tracing.py left (launch-bound case, torch 2.11, diffusers 0.42.1).
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.analyse.trace.mapping import SourceMap
from stepscope.capture.tracing import RawTrace, TraceRequest
from stepscope.model.run import Run
from stepscope.model.source_map import LineLog
from stepscope.model.trace import SourceLine
from stepscope.model.vocabulary import TraceDetail
from stepscope.record.kineto.reader import read_kineto
from stepscope.session.keep_trace import TraceToKeep, keep_trace
from stepscope.session.mapping import Mapping, mapping_of
from stepscope.session.observe import ObservedCall

DATA = Path(__file__).parent / "data" / "mapping"
KERNELS_A_STEP = 845


def lines() -> LineLog:
    noted = np.load(DATA / "mapping.lines.npz")
    sources = msgspec.json.decode(str(noted["sources"]), type=tuple[SourceLine, ...])
    return LineLog(
        thread=int(noted["thread"]),
        at_ns=noted["at_ns"].astype(np.int64) + int(noted["first"]),
        source=noted["source"].astype(np.int32),
        sources=sources,
    )


def observed(name: str, folder: Path, steps: tuple[int, ...], log: LineLog | None = None) -> ObservedCall:
    raw = folder / f"{name}.json"
    raw.write_bytes(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return ObservedCall(
        result=None,
        run=msgspec.json.decode((DATA / f"{name}.run.json").read_bytes(), type=Run),
        raw_trace=RawTrace(
            path=raw,
            anchors=tuple(map(tuple, json.loads((DATA / f"{name}.anchors.json").read_text()))),
            request=TraceRequest(steps=len(steps), scratch_dir=folder, detail=TraceDetail.SOURCE),
            steps=steps,
            lines=log,
        ),
    )


@pytest.fixture(scope="module")
def source_map(tmp_path_factory: pytest.TempPathFactory) -> SourceMap:
    mapping = mapping_of(observed("mapping", tmp_path_factory.mktemp("pass"), (2,), lines()))
    assert mapping.sources is not None
    return mapping.sources


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, source_map: SourceMap) -> Path:
    """The lean trace of both steps, as ``generate`` writes it."""
    folder = tmp_path_factory.mktemp("lean")
    call = observed("lean", folder, (1, 2))
    window, _ = keep_trace(
        TraceToKeep(observed=call, run=call.run, directory=folder, mapping=Mapping(sources=source_map))
    )
    return Path(window.path)


@pytest.fixture(scope="module")
def kernels(written: Path) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(written.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("cat") == "kernel"]


def test_every_kernel_has_operator_and_exact_line(written: Path, kernels: list[dict[str, Any]]) -> None:
    """The pass saw one step of four; both measured steps are mapped by it."""
    assert len(kernels) == 2 * KERNELS_A_STEP
    exact = [event for event in kernels if "source" in event["args"] and event["args"].get("exact", True)]
    assert len(exact) >= 0.99 * len(kernels)
    assert all(event["args"]["operator"].startswith("aten::") for event in exact)
    mapping = json.loads(gzip.decompress(written.read_bytes()))["stepscope"]["mapping"]
    assert mapping["checked"] >= 0.99 * mapping["calls"]


def test_the_same_kernel_of_every_step_has_the_same_line(kernels: list[dict[str, Any]]) -> None:
    """Step by step the same sequence, so the same places."""
    ordered = [event["args"].get("source") for event in sorted(kernels, key=lambda event: event["ts"])]
    first, second = ordered[:KERNELS_A_STEP], ordered[KERNELS_A_STEP:]

    assert sum(one == other for one, other in zip(first, second, strict=True)) >= KERNELS_A_STEP - 2


def test_lines_are_those_that_call(kernels: list[dict[str, Any]]) -> None:
    """Looked up in diffusers' source: the line that launches a projection names it."""
    diffusers = pytest.importorskip("diffusers")
    if diffusers.__version__ != "0.42.1":
        pytest.skip("recorded with diffusers 0.42.1")
    root = Path(diffusers.__file__).parents[1]
    checked = 0
    for event in kernels:
        leaf = event["args"].get("module", "").rpartition(".")[2]
        if not re.fullmatch(
            r"to_[qkv]|add_[qkv]_proj|norm_(added_)?[qk]|img_norm\d|txt_norm\d|proj_out", leaf
        ):
            continue
        file, _, rest = event["args"]["source"].partition(":")
        line = (root / file).read_text().splitlines()[int(rest.split()[0]) - 1]
        if "normalization.py" not in file:  # the norm's own forward
            assert leaf in line, (event["args"], line)
            checked += 1
    assert checked > 200


def test_operators_fit_their_kernels(kernels: list[dict[str, Any]]) -> None:
    """GEMMs come from addmm, attention from scaled dot product attention, and so on."""
    for event in kernels:
        operator = event["args"].get("operator")
        if event["name"].startswith("nvjet"):
            assert operator == "aten::addmm"
        if "sdpa" in event["name"]:
            assert "attention" in operator
        if "Gelu" in event["name"]:
            assert operator == "aten::gelu"


def test_reports_read_the_lines_and_shapes_back(written: Path) -> None:
    """Operators with shapes, from calls; FLOPs can be counted from them."""
    trace = read_kineto(written)
    names = {trace.names[name] for name in trace.operators.name}

    assert {"aten::addmm", "aten::_cudnn_attention_forward", "aten::native_layer_norm"} <= names
    assert trace.has_shapes
    assert len(trace.sources) > 40


def test_a_cache_that_skips_blocks_costs_only_their_lines(source_map: SourceMap, tmp_path: Path) -> None:
    """Launches of half a forward are missing: what is left is still found, nothing is invented."""
    call = observed("lean", tmp_path, (1, 2))
    assert call.raw_trace is not None
    document = json.loads(call.raw_trace.path.read_text())
    launches = sorted(
        (e["ts"], e["args"]["correlation"])
        for e in document["traceEvents"]
        if e["name"] == "cudaLaunchKernel"
    )
    skipped = {correlation for _, correlation in launches[100:250]}
    document["traceEvents"] = [
        event for event in document["traceEvents"] if event["args"].get("correlation") not in skipped
    ]
    call.raw_trace.path.write_text(json.dumps(document))
    mapping = Mapping(sources=replace(source_map))
    window, _ = keep_trace(TraceToKeep(observed=call, run=call.run, directory=tmp_path, mapping=mapping))
    summary = json.loads(gzip.decompress(Path(window.path).read_bytes()))["stepscope"]["mapping"]

    assert summary["checked"] + summary["by_place"] >= 0.97 * summary["calls"]
