"""A trace without GPU work tells what its operators cost: by name, category, line and module."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyse.kernels.operator_categories import operator_category
from stepscope.analyse.report import analyse_trace, assemble
from stepscope.analyse.results import OperatorTime, Report
from stepscope.analyse.trace.operator_time import self_times
from stepscope.analyse.trace.stages_and_steps import Marks
from stepscope.model.trace import SourceLine
from stepscope.render.report.report_csv import render_csv
from stepscope.render.report.report_html import render_html
from stepscope.render.report.report_json import render_json
from stepscope.render.report.report_markdown import render_markdown
from stepscope.render.report.report_terminal import render_terminal
from traces import TraceBuilder

NO_MARKS = Marks(stages=(), steps=(), forwards=(), transfers=(), notes=())


def line(number: int, block: int) -> SourceLine:
    return SourceLine(
        file="mine/model.py",
        line=number,
        function="forward",
        line_exact=True,
        module_path=f"transformer.blocks.{block}.mlp",
    )


def two_steps() -> TraceBuilder:
    """Two steps of 100 µs on thread 1: linear around addmm, and a mul; another thread and a time outside."""
    made = TraceBuilder()
    for step, start in enumerate((0, 100)):
        made.annotate(f"denoising_step_{step}", start, 100, ours=True)
        made.operator("aten::linear", start + 10, 40, source=line(7, step))
        made.operator("aten::addmm", start + 15, 30, source=line(7, step))
        made.operator("aten::mul", start + 60, 20, source=line(9, step))
    made.operator("aten::mul", 10, 80, thread=2)
    made.operator("aten::silu", 300, 50)
    return made


def report_of(made: TraceBuilder) -> Report:
    return assemble(("made.trace.json",), (), (analyse_trace(made.build()),))


def operators_of(made: TraceBuilder) -> OperatorTime:
    found = report_of(made).ranks[0].operators
    assert found is not None
    return found


def test_an_operator_costs_what_those_inside_it_do_not() -> None:
    """Self time, only in the steps and on their thread; the rest of the steps is Python between."""
    found = operators_of(two_steps())
    assert {row.name: round(row.total_ms * 1000) for row in found.rows} == {
        "aten::addmm": 60,
        "aten::mul": 40,
        "aten::linear": 20,
    }
    assert [row.share for row in found.rows] == pytest.approx([0.3, 0.2, 0.1])
    assert (found.traced_ms, found.inside_ms) == (pytest.approx(0.2), pytest.approx(0.12))
    assert (found.basis, found.count) == ("the 2 traced steps", 6)
    assert {row.name: (row.total_ms, row.count) for row in found.categories} == {
        "gemm": (pytest.approx(0.08), 4),
        "elementwise": (pytest.approx(0.04), 2),
    }


def test_a_line_that_many_blocks_run_through_is_one_row() -> None:
    """With the kind of module; and modules are told with their blocks together."""
    found = operators_of(two_steps())
    told = [(row.source.line, row.module, round(row.total_ms * 1000)) for row in found.lines if row.source]
    assert told == [(7, "transformer.blocks.*.mlp", 80), (9, "transformer.blocks.*.mlp", 40)]
    assert [(row.operator, row.category) for row in found.lines] == [
        ("aten::addmm", "gemm"),
        ("aten::mul", "elementwise"),
    ]
    assert [(row.module, row.count) for row in found.modules] == [("transformer.blocks.*.mlp", 6)]


def test_modules_and_lines_of_a_trace_with_frames_come_from_the_frames() -> None:
    """The definition's line, and the path of the modules' classes."""
    made = TraceBuilder()
    made.frame("nn.Module: Transformer_0", 0, 100)
    made.frame("mine/model.py(5): forward", 1, 98)
    for block, start in enumerate((2, 50)):
        made.frame(f"nn.Module: Block_{block}", start, 40)
        made.frame("mine/model.py(9): forward", start + 1, 38)
        made.operator("aten::mm", start + 5, 20)
    made.operator("aten::add", 94, 2)
    found = operators_of(made)
    assert [(row.module, row.count) for row in found.modules] == [
        ("Transformer.Block", 2),
        ("Transformer", 1),
    ]
    assert [row.source and (row.source.line, row.source.line_exact) for row in found.lines] == [
        (9, False),
        (5, False),
    ]
    assert found.basis == "the thread with most operators"


def test_every_view_tells_them_and_the_first_screen_names_the_costliest() -> None:
    """Terminal, Markdown, HTML, JSON and CSV from the same rows."""
    report = report_of(two_steps())
    text = render_terminal(report)
    screen = " ".join(text.splitlines()[:16])
    screen = " ".join(screen.split())
    assert (
        "CPU time of the 2 traced steps: gemm 40.0 %, elementwise 20.0 %, Python between operators" in screen
    )
    assert (
        "Costliest operator aten::addmm, 60.0 µs (30.0 %) in 2 calls; line mine/model.py:7 (forward)"
        in screen
    )
    for shown in (text, render_markdown(report), render_html(report)):
        assert "aten::addmm" in shown
        assert "mine/model.py:9" in shown
        assert "transformer.blocks." in shown
        assert "Python between operators" in shown
    found = json.loads(render_json(report))["ranks"][0]["operators"]
    assert [row["name"] for row in found["rows"]] == ["aten::addmm", "aten::mul", "aten::linear"]
    rows = list(csv.DictReader(io.StringIO(render_csv(report, "lines"))))
    assert [(row["source_line"], row["operator"]) for row in rows] == [
        ("7", "aten::addmm"),
        ("9", "aten::mul"),
    ]


def test_a_trace_with_gpu_work_shows_kernels_alone() -> None:
    """Operators that launch kernels are not told twice."""
    made = two_steps()
    made.launch("gemm", 20, 30, 10)
    report = report_of(made)
    assert report.ranks[0].operators is None
    assert "Costliest" not in render_terminal(report)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("aten::addmm", "gemm"), ("aten::linear", "gemm"), ("aten::mm", "gemm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::slow_conv3d_forward", "convolution"), ("aten::mkldnn_convolution", "convolution"),
        ("aten::native_layer_norm", "normalisation"), ("aten::_softmax", "normalisation"),
        ("aten::_to_copy", "copy_layout"), ("aten::to", "copy_layout"), ("aten::unfold", "copy_layout"),
        ("aten::as_strided", "copy_layout"), ("aten::empty_strided", "memory"), ("aten::sum", "reduction"),
        ("aten::max_pool2d", "reduction"), ("aten::tanh", "elementwise"), ("aten::div_", "elementwise"),
        ("aten::maximum", "elementwise"), ("aten::item", "other"), ("mine::odd", "other"),
        ("sgl_kernel::fused_norm_scale_shift_cpu", "normalisation"), ("addmm", "other"),
    ],
)  # fmt: skip
def test_operators_have_the_kernels_categories(name: str, category: str) -> None:
    """Of ATen's own by the operator's name, of others' as for kernels."""
    assert operator_category(name).value == category


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=25)


@given(RANGES)
def test_self_times_sum_to_the_time_inside_operators(ranges: list[tuple[int, int]]) -> None:
    """Nested, overlapping or apart: every moment in any operator is one operator's, and no more."""
    made = TraceBuilder()
    for start, duration in ranges:
        made.operator("aten::add", start, duration)
    found = self_times(made.build(), NO_MARKS)
    covered = {at for start, duration in ranges for at in range(start, start + duration)}
    assert found.inside_ns == 1000 * len(covered)
    assert (found.self_ns <= made.build().operators.duration_ns).all()
    assert found.inside_ns <= found.traced_ns or found.traced_ns == 0


@pytest.mark.parametrize(
    "name", ["sglang_cpu_8_steps_asked_3", "sglang_cpu_full_stages", "vllm_omni_cpu_uniproc"]
)
def test_traces_of_other_engines_are_told(shared_traces: Path, name: str) -> None:
    """Recorded on a CPU by the engines' own profilers: every sum is that of the operators."""
    from stepscope.record.open import read_trace

    found = analyse_trace(read_trace(shared_traces / f"engines/{name}.trace.json.gz")).rank.operators
    assert found is not None
    assert found.rows[0].name == "aten::addmm"
    for rows in (found.rows, found.categories, found.lines):
        assert sum(row.total_ms for row in rows) == pytest.approx(found.inside_ms)
    assert 0.4 < found.inside_ms / found.traced_ms < 0.9
    assert np.isclose(found.located_share or 0.0, 1.0)


def test_names_of_any_length_fill_no_screen() -> None:
    """Nor do they leave anything in the text that a terminal would obey."""
    made, name = TraceBuilder(), "\x1b[31m<script>`x`|" * 60
    made.annotate("denoising_step_0", 0, 10_000, ours=True)
    source = SourceLine(file=f"/{name}", line=3, function=name, line_exact=True, module_path=f"a.0.{name}")
    for at in range(1_200):
        made.operator(name, at * 5, 3, source=source)
    report = report_of(made)
    text = render_terminal(report)
    assert "\x1b" not in text
    assert len(text.split("\nStages in")[0].splitlines()) < 26
    assert "<script>`x`" not in render_html(report)
