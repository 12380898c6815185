"""Any numbers that a file can hold go through compare, gate and sweep into every view."""

import warnings

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.analyse.comparison.cohort import Cohort, observe, side_of
from stepscope.analyse.comparison.compare import compare, fails_above
from stepscope.analyse.comparison.compare_results import CompareReport, Verdict
from stepscope.analyse.comparison.gate import gate
from stepscope.analyse.comparison.gate_results import GateReport
from stepscope.analyse.comparison.scaling import sweep_report
from stepscope.analyse.comparison.statistics import sample_of, welch
from stepscope.analyse.run.summarise import summarise
from stepscope.model.budget import Baseline, Budget, Budgets
from stepscope.model.sweep import SweepPoint, SweepRow
from stepscope.record.perf_dump_reader import perf_dump_from_json
from stepscope.render.comparison import (
    compare_html,
    compare_json,
    compare_markdown,
    compare_terminal,
    gate_github,
    gate_junit,
    gate_terminal,
    sweep_views,
)

odd = st.one_of(
    st.floats(-1e17, 1e17), st.floats(0.001, 1e5), st.sampled_from([0.0, -0.0, 1e-300, 1e17, 350.0])
)
names = st.sampled_from(["TextEncodingStage", "DenoisingStage", "DecodingStage", "", "::x::", "\x1b"])
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

dumps = st.fixed_dictionaries(
    {
        "total_duration_ms": st.one_of(odd, st.none()),
        "steps": st.lists(st.fixed_dictionaries({"name": names, "duration_ms": odd}), max_size=4),
        "denoise_steps_ms": st.lists(
            st.fixed_dictionaries({"step": st.integers(-1, 5), "duration_ms": odd}), max_size=5
        ),
    }
)
rows = st.builds(
    lambda width, steps, total, step, decode, extra: SweepRow(
        id="x", point=SweepPoint(width=width, height=1024, steps=steps), status="ok", total_ms=total,
        width=width, height=1024, steps=steps, step_ms=step, first_use_ms=extra,
        stages_ms={"DenoisingStage": step, "DecodingStage": decode},
    ),
    st.sampled_from([None, 0, 1, 1024, 1032, 1040, 2**31 - 1]), st.sampled_from([None, 0, 1, 2, 3]),
    st.one_of(st.none(), odd.map(abs)), odd.map(abs), odd.map(abs), st.one_of(st.none(), odd),
)  # fmt: skip


def summary(document):
    return summarise(perf_dump_from_json(document, origin="x"), path="x.json")


def cohort(documents):
    return Cohort(label="x", runs=tuple(observe(summary(each)) for each in documents))


def test_a_side_without_spread_says_nothing_on_standard_error() -> None:
    """scipy warns of it; the verdict says what there is to say."""
    flat = sample_of([350.0] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert welch(flat, sample_of([350.1, 350.2, 350.9])).p_value > 0


@quick
@given(st.lists(dumps, min_size=1, max_size=3), st.lists(dumps, min_size=1, max_size=3))
def test_any_two_sides_compare(left, right) -> None:
    """A verdict has numbers behind it: faster or slower only from one positive total to another."""
    base, new = cohort(left), cohort(right)
    found = compare(base, new)
    report = CompareReport(schema_version=1, base=side_of(base), comparisons=(found,))
    compare_terminal.render_compare_terminal(report)
    compare_markdown.render_compare_markdown(report)
    compare_html.render_compare_html(report)
    compare_json.render_compare_json(report)
    fails_above(found, 0.05)
    if found.total.verdict is not Verdict.NO_VERDICT:
        assert found.total.base.median > 0
        assert found.total.new.median > 0


@quick
@given(dumps, odd.map(abs).filter(bool))
def test_any_run_can_be_gated(document, limit) -> None:
    """What keeps a budget was measured."""
    budget = Budget(total_ms=limit, step_ms=limit, slowest_step_ms=limit, stages={"DenoisingStage": limit})
    result = gate(summary(document), Budgets(default=budget, baseline=Baseline()))
    report = GateReport(schema_version=1, passed=result.passed, results=(result,))
    gate_terminal.render_gate_terminal(report)
    gate_terminal.render_gate_markdown(report)
    gate_junit.render_gate_junit(report)
    gate_github.render_gate_github(report)
    assert all(check.measured is None or check.measured >= 0 for check in result.checks)


@quick
@given(st.lists(rows, max_size=8))
def test_any_rows_are_a_sweep(found) -> None:
    """Sizes so close together that noise is the slope have no law, and overflow nothing."""
    report = sweep_report(found)
    sweep_views.render_sweep_terminal(report)
    sweep_views.render_sweep_markdown(report)
    sweep_views.render_sweep_html(report)
    sweep_views.render_sweep_json(report)


def test_sizes_too_close_together_have_no_law() -> None:
    """Time halves over 1 % of size by noise: exponent -87 is no growth, and e^722 no number."""
    sizes = zip((1024, 1032, 1040, 1048), (1000.0, 700.0, 400.0, 200.0), strict=True)
    found = [
        SweepRow(
            id=str(width), point=SweepPoint(width=width, height=16), status="ok", total_ms=ms, width=width,
            height=16, steps=1, stages_ms={"DenoisingStage": ms}, step_ms=ms,
        )
        for width, ms in sizes
    ]  # fmt: skip
    assert sweep_report(found).fits == ()
