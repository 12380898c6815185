"""Names of any length in a terminal of any width: figures stay, names lose their middle."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dumps import stepscope_json
from runs import three_stages
from stepscope.analyse.comparison.cohort import Cohort, observe, side_of
from stepscope.analyse.comparison.compare import compare
from stepscope.analyse.comparison.compare_results import CompareReport
from stepscope.analyse.comparison.gate import gate
from stepscope.analyse.comparison.gate_results import GateReport
from stepscope.analyse.run.reconcile import reconcile
from stepscope.analyse.run.summarise import summarise
from stepscope.model.budget import Budget, Budgets
from stepscope.record.perf_dump_reader import perf_dump_from_json
from stepscope.render.comparison.compare_terminal import render_compare_terminal
from stepscope.render.comparison.gate_terminal import render_gate_terminal
from stepscope.render.report.report_terminal import render_terminal
from stepscope.render.report.run_summary import RunFiles, render_run_summary
from stepscope.session.compare import compare_files
from stepscope.session.report import report_files

LONG = "MyVeryLong" + "Tiled" * 37 + "Stage"
ORDINARY = "MyTiledDecodingStage"
WIDTHS = pytest.mark.parametrize("width", [60, 80, 100, 140])
TRACES = Path(__file__).parent / "data" / "traces"


def document(step_ms: float, stage: str):
    made = stepscope_json([step_ms] * 6, decode_ms=80 + step_ms / 10)
    made["steps"][2]["name"] = made["stages"][2]["name"] = stage
    return made


def cohort(label: str, step_ms: float, stage: str) -> Cohort:
    dumps = [document(step_ms * (1 + 0.01 * at), stage) for at in range(4)]
    runs = [summarise(perf_dump_from_json(dump, origin="x"), path=f"{label}-{at}.json")
            for at, dump in enumerate(dumps)]  # fmt: skip
    return Cohort(label=label, runs=tuple(map(observe, runs)))


def compared(stage: str, width: int, label: str = "new") -> list[str]:
    base = cohort("base", 300, stage)
    found = compare(base, cohort(label, 350, stage))
    report = CompareReport(schema_version=1, base=side_of(base), comparisons=(found, found))
    return render_compare_terminal(report, width=width).splitlines()


def line_of(lines: list[str], start: str) -> str:
    return next(line for line in lines if line.startswith(start))


@WIDTHS
def test_a_long_stage_name_costs_a_comparison_no_figure(width: int) -> None:
    """The row has all figures whole and the verdict; nothing is wider than the terminal."""
    lines = compared(LONG, width)
    assert max(map(len, lines)) <= width
    row = line_of(lines, "MyVery")
    name = row.split()[0]
    assert name.startswith("MyVery")
    assert name.endswith("ge")
    assert "…" in name
    for figure in ("110.4 ms", "115.5 ms", "+4.6 %", "slower"):
        assert figure in row


@pytest.mark.parametrize("width", [80, 140])
def test_a_long_name_costs_no_column_either(width: int) -> None:
    """The same columns as beside an ordinary name, whole, optional ones too where there is room for them."""

    def titles(stage: str) -> list[str]:
        lines = compared(stage, width)
        return lines[lines.index("Stages") + 1].split()

    assert titles(LONG) == titles(ORDINARY)
    assert ("interval" in titles(LONG)) is (width == 140)


@WIDTHS
def test_no_word_and_no_verdict_is_cut(width: int) -> None:
    """In the narrowest, too: reasons wrap between words, verdicts are whole."""
    lines = compared(ORDINARY, width)
    text = "\n".join(lines)
    assert "no change" in text
    assert text.count("1.6e-05") >= 2
    assert not [line for line in lines if line.strip() in {"e-0", "6", "5", "l"}]


@WIDTHS
def test_long_file_names_leave_the_figures_of_all_files(width: int) -> None:
    """Several files are a row each: runs, total, change and verdict."""
    lines = compared(ORDINARY, width, label="n" * 200)
    row = line_of(lines, "nnn")
    for figure in ("4", "2,447.0", "+14.5 %", "slower"):
        assert figure in row


@WIDTHS
@pytest.mark.parametrize("stage", [ORDINARY, LONG])
def test_a_gate_shows_measured_and_budget(width: int, stage: str) -> None:
    """Whatever the stage is called."""
    run = summarise(perf_dump_from_json(document(350, stage), origin="x"), path="x.json")
    result = gate(run, Budgets(default=Budget(total_ms=1000, stages={stage: 90.0})))
    text = render_gate_terminal(
        GateReport(schema_version=1, passed=False, results=(result,)), width=width
    )  # the headline names the stage too, in full
    lines = text[text.index("budget default") :].splitlines()
    assert max(map(len, lines)) <= width
    row = line_of(lines, "stage My")
    for figure in ("FAILED", "115.0 ms", "90.0 ms"):
        assert figure in row


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_run_with_a_long_stage_name_shows_its_times(width: int) -> None:
    """The stage table that generate prints: time and share."""
    run = three_stages()
    first = run.stages[0]
    long = replace(first, span=replace(first.span, name=LONG))
    run = replace(run, stages=(long, *run.stages[1:]))
    summary = summarise(reconcile(run))
    lines = render_run_summary(summary, run, RunFiles(), width).splitlines()
    row = line_of(lines, "MyVery")
    assert max(map(len, lines)) <= width
    assert f"{first.span.duration_ns / 1e6:.1f}" in row
    assert "%" in row


@WIDTHS
def test_a_stage_that_is_called_by_a_text_fills_no_screen(width: int, tmp_path: Path) -> None:
    """A dump may hold a name of 100,000 characters: a name that wraps loses its middle too."""
    path = tmp_path / "perf.json"
    path.write_text(json.dumps(document(350, "x" * 100_000)))
    lines = render_terminal(report_files([path]).report, width).splitlines()
    named = [line for line in lines if "xxxxx" in line]
    assert max(map(len, named)) <= width
    assert len(named) < 60
    assert "…" in "".join(named)


@pytest.mark.parametrize("other", ["qwen_image_4layer_all_stages_stack_memory", "ulysses2-global-rank0"])
@WIDTHS
def test_kernel_tables_keep_the_difference(width: int, other: str) -> None:
    """Kernel names are the longest there are; both tables have every row's difference."""
    base = TRACES / "qwen_image_4layer_all_stages_stack_memory.trace.json.gz"
    report = compare_files([base], [[TRACES / f"{other}.trace.json.gz"]], anyway=True)
    text = render_compare_terminal(report, width=width)
    tables = text[text.index("Kernel time of") :].split("\n\n")
    for table in tables[0], tables[1]:
        assert "difference ms" in table
    assert max(map(len, text.splitlines())) <= width
